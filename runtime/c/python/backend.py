"""Builds the wheel: `pip install runtime/c/python` in a checkout. Needs nothing but cargo and LLVM.

The library is that of the variable URUK_LIBRARY; without it, it is built in release mode. Its debug
information is left out, if there is `strip`.
"""

import base64, glob, hashlib, os, re, shutil, subprocess, tempfile, zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..", "..")
TAG = "py3-none-linux_x86_64"


def _version():
    with open(os.path.join(ROOT, "Cargo.toml"), encoding="utf-8") as file:
        return re.search(r'(?m)^version = "(.*)"$', file.read())[1]


def _library():
    """The library, which is built unless it is given."""
    given = os.environ.get("URUK_LIBRARY")
    if given:
        return given
    subprocess.run(["cargo", "build", "--release", "-p", "uruk-c"], cwd=ROOT, check=True)
    target = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
    return os.path.join(target, "release", "liburuk_c.so")


def _llvm_of(library):
    """The library of LLVM that was linked for it, if one was: its name is in the library."""
    with open(library, "rb") as file:
        text = file.read()
    # `cargo test` has the library in a folder of its own.
    folder = os.path.dirname(os.path.abspath(library))
    for place in (folder, os.path.dirname(folder)):
        for file in glob.glob(os.path.join(place, "build", "*", "out", "libLLVM-uruk-*.so")):
            if os.path.basename(file).encode() in text:
                return file
    return None


def _stripped(library, folder):
    program, to = shutil.which("strip"), os.path.join(folder, os.path.basename(library))
    if program is None:
        return library
    subprocess.run([program, "--strip-debug", "-o", to, library], check=True)
    return to


def _metadata(version):
    return {
        "METADATA": "Metadata-Version: 2.1\nName: uruk\n"
                    f"Version: {version}\nSummary: A lazy, tiered JIT runtime for LLVM IR\n"
                    "License: MIT OR Apache-2.0\nRequires-Python: >=3.8\n",
        "WHEEL": f"Wheel-Version: 1.0\nGenerator: uruk\nRoot-Is-Purelib: false\nTag: {TAG}\n",
    }


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    """The texts about the wheel, without building the library."""
    version = _version()
    name = f"uruk-{version}.dist-info"
    os.makedirs(os.path.join(metadata_directory, name), exist_ok=True)
    for file, text in _metadata(version).items():
        with open(os.path.join(metadata_directory, name, file), "w", encoding="utf-8") as out:
            out.write(text)
    return name


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """Called by pip; the name of the file."""
    version, library = _version(), _library()
    files = {f"uruk/{os.path.basename(file)}": file
             for file in glob.glob(os.path.join(HERE, "uruk", "*.py"))}
    texts = {f"uruk-{version}.dist-info/{name}": text for name, text in _metadata(version).items()}
    records = []
    wheel = f"uruk-{version}-{TAG}.whl"
    with tempfile.TemporaryDirectory() as folder, \
            zipfile.ZipFile(os.path.join(wheel_directory, wheel), "w", zipfile.ZIP_DEFLATED) as out:
        files["uruk/lib/liburuk.so"] = _stripped(library, folder)
        llvm = _llvm_of(library)
        if llvm:
            files[f"uruk/lib/uruk/{os.path.basename(llvm)}"] = _stripped(llvm, folder)
        for license_file in ("LICENSE-APACHE", "LICENSE-MIT"):
            files[f"uruk-{version}.dist-info/{license_file}"] = os.path.join(ROOT, license_file)
        for name, file in files.items():
            with open(file, "rb") as opened:
                texts[name] = opened.read()
        for name, text in texts.items():
            data = text.encode() if isinstance(text, str) else text
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            records.append(f"{name},sha256={digest},{len(data)}\n")
            out.writestr(name, data, compresslevel=1)
        record = f"uruk-{version}.dist-info/RECORD"
        out.writestr(record, "".join(records) + f"{record},,\n")
    return wheel


def build_sdist(sdist_directory, config_settings=None):
    """There is none: the wheel is built in a checkout."""
    raise NotImplementedError("install from a checkout: `pip install runtime/c/python`")
