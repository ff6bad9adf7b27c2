# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154
# The Python environments that the runtimes run in: 'dev' reads this file, whose functions use those of 'dev'.
# Each environment lies in the cache folder under a name that ends in the hash of all that it is made of.

# The torch of the wheel is linked with 3 GB of CUDA libraries beside the two that are installed, and no call reaches them
# on a CPU. Empty libraries take their place, and Python is told to look functions up at their first call.
without_cuda() {
  local libraries=$1/nvidia/cu13/lib names name
  names=$(readelf -d "$1"/torch/lib/lib*.so | sed -n 's/.*NEEDED.*\[\(lib\(cu\|nv\|nccl\).*\)\]/\1/p' | sort -u)
  printf 'NVSHMEM { *; };' >"$libraries/version"
  for name in $names; do
    [[ $name != libcuda.so.1 && ! -e $libraries/$name ]] || continue # libcuda.so.1: the driver's, looked for at need
    case $name in
      libnvshmem*) # the one variable of theirs that torch names
        echo 'int nvshmem_selected_device_transport;' | g++ -x c -shared -fPIC -nostdlib -Wl,-soname,"$name" \
          -Wl,--version-script="$libraries/version" -o "$libraries/$name" - ;;
      *) g++ -x c -shared -fPIC -nostdlib -Wl,-soname,"$name" -o "$libraries/$name" - </dev/null ;;
    esac
  done
  rm "$libraries/version"
  echo 'import os, sys; sys.setdlopenflags(os.RTLD_LAZY)' >"$1/without_cuda.pth"
}

# fill_environment NAME FOLDER [BASE] makes a virtual environment of what is pinned for NAME. What it lacks it takes from
# the environment BASE.
fill_environment() {
  local name=$1 folder=$2 base=${3:-} site=$2/lib/python3.11/site-packages file
  python3.11 -m venv --without-pip "$folder" || die "no virtual environment can be made: is python3.11 there?"
  if [[ $name == torch ]]; then
    quietly pip --python "$folder/bin/python" install -q --no-deps "$(wheel torch)" "$(wheel nvidia_cuda_runtime)" \
      "$(wheel nvidia_cuda_cupti)" || die "pip could not install torch"
  elif [[ -n $base ]]; then
    echo "import site; site.addsitedir('$base/lib/python3.11/site-packages')" >"$site/$name.pth"
  fi
  # What builds a package from its source has to be there before it. pin.py writes the hashes.
  for file in tests/interop/requirements/"$name"{-builders,}.txt; do
    [[ -e $file ]] || continue
    MINFERENCE_SKIP_CUDA_BUILD=TRUE CMAKE_ARGS=-DGGML_NATIVE=OFF quietly pip --python "$folder/bin/python" install -q \
      --no-deps --only-binary :all: --require-hashes --no-build-isolation -r "$file" ||
      die "pip could not fetch what $file pins; the first ./dev interop needs the network"
  done
  [[ ! -d $site/torch ]] || without_cuda "$site"
}

# environment NAME makes sure that the environment is in the cache, for the requirements as they stand, and prints its folder.
environment() {
  local name=$1 requirements=tests/interop/requirements/$1.txt base='' folder started=$SECONDS
  [[ -e $requirements ]] || die "there is no $requirements"
  base=$(sed -n '1s/^# on //p' "$requirements")
  [[ -z $base ]] || base=$(environment "$base")
  folder=$cache/interop/$name-$(sha256sum <(cat "${requirements%.txt}"{-builders,}.txt 2>/dev/null; echo "$base" && declare -f fill_environment without_cuda &&
    [[ $name != torch ]] || echo "$pins") | cut -c1-12)
  if [[ ! -d $folder ]]; then
    say "making the environment $name in $cache/interop"
    fill_environment "$name" "$cache/interop/partial" "$base" >&2
    mv "$cache/interop/partial" "$folder"
    say "it took $((SECONDS - started)) s and $(du -sh "$folder" | cut -f1)B"
  fi
  touch "$folder" # used today
  echo "$folder"
}

# converted_model TORCH prints the folder of the demo model in the form that transformers reads, in float32.
converted_model() {
  local torch=$1 folder
  folder=$cache/interop/model-$(sha256sum <(echo "$torch" && cat tests/interop/convert_model.py) | cut -c1-12)
  if [[ ! -d $folder ]]; then
    say "converting $model for transformers"
    TQDM_DISABLE=1 quietly "$torch/bin/python" tests/interop/convert_model.py "$cache/$model" "$cache/interop/partial" ||
      die "the model could not be converted"
    mv "$cache/interop/partial" "$folder"
  fi
  touch "$folder"
  echo "$folder"
}

# make_environments NAME… puts the named environments, the one of torch and the converted model into the cache.
make_environments() {
  local name
  (
    flock 9
    mkdir -p "$cache/interop"
    rm -rf "$cache/interop/partial"
    for name in torch "$@"; do environment "$name" >/dev/null; done
    converted_model "$(environment torch)" >/dev/null
    find "$cache/interop" -mindepth 1 -maxdepth 1 -mtime +14 -exec rm -r {} + # of other versions
  ) 9>"$cache/lock"
}
