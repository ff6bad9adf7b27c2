# SPDX-License-Identifier: Apache-2.0
"""Writes a GGUF file anew with changed metadata: set_gguf_metadata.py gguf_metadata.json IN.gguf OUT.gguf

Needs the package gguf. IN.gguf is only read, OUT.gguf must not exist yet; tensors are copied one by one.
"""

import json
import os
import sys
from pathlib import Path

from gguf import GGUFReader, GGUFValueType, GGUFWriter


Change = tuple[int | list[bool], GGUFValueType]


def read_changes(path: Path, reader: GGUFReader) -> dict[str, Change]:
    """The values to be set, after a look whether the file is of the model that they are for."""
    wanted = json.loads(path.read_text())
    architecture = reader.get_field("general.architecture").contents()
    if architecture != wanted["architecture"]:
        sys.exit(f"the file is of architecture {architecture}, and the metadata for {wanted['architecture']}")
    blocks = reader.get_field(f"{architecture}.block_count").contents()
    if blocks != wanted["block_count"]:
        sys.exit(f"the file has {blocks} layers, and the metadata is for {wanted['block_count']}")
    split = reader.get_field("split.count")
    if split is not None and split.contents() > 1:
        sys.exit("the file is one of several parts: join them first (llama-gguf-split --merge)")
    kinds = {list: GGUFValueType.ARRAY, int: GGUFValueType.UINT32}
    return {key: (value, kinds[type(value)]) for key, value in wanted["metadata"].items()}


def write(reader: GGUFReader, changes: dict[str, Change], path: Path) -> None:
    writer = GGUFWriter(path, reader.get_field("general.architecture").contents(), endianess=reader.endianess)
    writer.data_alignment = reader.alignment
    for field in reader.fields.values():
        # The writer makes the counts and the architecture itself.
        if field.name.startswith("GGUF.") or field.name == "general.architecture" or field.name in changes:
            continue
        kind = field.types[0]
        writer.add_key_value(field.name, field.contents(), kind, field.types[-1] if len(field.types) > 1 else None)
    for key, (value, kind) in changes.items():
        writer.add_key_value(key, value, kind, GGUFValueType.BOOL if kind == GGUFValueType.ARRAY else None)
    for tensor in reader.tensors:
        data = tensor.data
        writer.add_tensor_info(tensor.name, data.shape, data.dtype, data.nbytes, tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for tensor in reader.tensors:
        writer.write_tensor_data(tensor.data)
    writer.close()


def main() -> None:
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    changes_path, source, target = map(Path, sys.argv[1:])
    if target.exists():
        sys.exit(f"{target} exists")
    reader = GGUFReader(source)
    changes = read_changes(changes_path, reader)
    unfinished = target.with_name(target.name + ".part")
    write(reader, changes, unfinished)
    os.rename(unfinished, target)
    for key, (value, _) in changes.items():
        print(f"{key} = {value}")


if __name__ == "__main__":
    main()
