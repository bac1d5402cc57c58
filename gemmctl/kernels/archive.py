"""Files that have most of their bytes in common, packed together as .tar.xz.

The standard library alone, since cubin/build.py reads this without gemmctl being installed.
"""

from __future__ import annotations

import io
import lzma
import tarfile
from collections.abc import Mapping

SUFFIX = ".tar.xz"


def pack(files: Mapping[str, bytes]) -> bytes:
    """An archive of files, by name; the same files give the same bytes with one liblzma."""
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as archive:
        for name, content in sorted(files.items()):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return lzma.compress(tar.getvalue(), preset=9)


def unpack(packed: bytes) -> dict[str, bytes]:
    """The files of an archive, by name.

    Raises ValueError if it is none, is cut short, or has something behind it.
    """
    stream = lzma.LZMADecompressor(lzma.FORMAT_XZ)
    try:
        tar = stream.decompress(packed)
        if not stream.eof:
            raise ValueError("it ends too soon")
        if stream.unused_data:
            raise ValueError("something is behind its end")
        with tarfile.open(fileobj=io.BytesIO(tar), mode="r:") as archive:
            files = {member.name: archive.extractfile(member) for member in archive}
            return {name: file.read() for name, file in files.items() if file}
    except (lzma.LZMAError, tarfile.TarError) as error:
        raise ValueError(str(error)) from None
