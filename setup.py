"""What pyproject.toml cannot say yet: the C module. Where there is no compiler, asyncrec installs without it."""

import sysconfig
from glob import glob

from setuptools import Extension, setup

# One binary serves 3.11 and all later ones. Builds of Python without a GIL have no such ABI; there it is made anew.
stable_abi = not sysconfig.get_config_var("Py_GIL_DISABLED")

native = Extension(
    "asyncrec._native._c",
    sorted(glob("asyncrec/_native/*.c")),
    depends=glob("asyncrec/_native/*.h"),
    define_macros=[("Py_LIMITED_API", "0x030B0000")] if stable_abi else [],
    extra_compile_args=["-O3", "-std=c11"],
    py_limited_api=stable_abi,
    optional=True,
)

setup(ext_modules=[native], options={"bdist_wheel": {"py_limited_api": "cp311"}} if stable_abi else {})
