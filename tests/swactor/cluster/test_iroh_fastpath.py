"""The fast copy is installed where it fits, and nowhere else."""

from types import ModuleType

from iroh import iroh_ffi

from swactor.cluster.transport._iroh_fastpath import install


def binding_with(builder: type) -> ModuleType:
    module = ModuleType("iroh_ffi")
    module.__dict__["_UniffiRustBufferBuilder"] = builder
    return module


def test_it_fits_todays_binding_and_may_be_installed_again() -> None:
    assert install(iroh_ffi)
    assert install(iroh_ffi)


def test_a_binding_of_another_shape_is_left_alone() -> None:
    class Builder:
        def write(self, value: bytes) -> None: ...

    original = Builder.write

    assert not install(ModuleType("iroh_ffi"))
    assert not install(binding_with(Builder))
    assert Builder.write is original


def test_a_binding_that_fails_the_round_trip_gets_its_own_copy_back() -> None:
    class Builder:
        def write(self, value: bytes) -> None: ...

        def _reserve(self, num_bytes: int) -> None:
            raise MemoryError

        def finalize(self) -> None: ...

    original = Builder.write

    assert not install(binding_with(Builder))
    assert Builder.write is original
