"""Files that have most of their bytes in common, packed together as .tar.xz.

The standard library alone, since cubin/build.py reads this without gemmctl being installed.
"""

from __future__ import annotations

from collections.abc import Mapping

SUFFIX = ".tar.xz"
PRESET = 9  # of xz: what is packed once and committed had better be small


def pack(files: Mapping[str, bytes]) -> bytes:
    """An archive of files, by name; the same files give the same bytes with one liblzma.

    Raises ImportError in a Python that was built without liblzma.
    """
    import io
    import lzma
    import tarfile

    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as archive:
        for name, content in sorted(files.items()):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return lzma.compress(tar.getvalue(), preset=PRESET)


def unpack(packed: bytes) -> dict[str, bytes]:
    """The files of an archive, by name.

    Raises ValueError if it is none, is cut short, has something behind it, a name twice or what is
    no file, and ImportError like ``pack``.
    """
    import io
    import lzma
    import tarfile

    stream = lzma.LZMADecompressor(lzma.FORMAT_XZ)
    files: dict[str, bytes] = {}
    try:
        tar = stream.decompress(packed)
        if not stream.eof:
            raise ValueError("it ends too soon")
        if stream.unused_data:
            raise ValueError("something is behind its end")
        with tarfile.open(fileobj=io.BytesIO(tar), mode="r:") as archive:
            for member in archive:
                file = archive.extractfile(member) if member.isreg() else None
                if file is None or member.name in files:
                    raise ValueError(f"{member.name} in it is no file, or there twice")
                files[member.name] = file.read()
    except (lzma.LZMAError, tarfile.TarError, OverflowError, RecursionError) as error:
        raise ValueError(str(error)) from None
    return files
