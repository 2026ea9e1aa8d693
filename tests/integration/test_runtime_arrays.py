"""Arrays, textures and texture references through the runtime: what goes to the node comes back as it was."""

from __future__ import annotations

from tests.support.runtime_share import Share, share

__all__ = ["share"]  # the fixture


def test_a_pitched_block_goes_through_an_array_and_back(share: Share) -> None:
    share.run(
        """
        start()
        shape = cu.CUDA_ARRAY3D_DESCRIPTOR()
        shape.Width, shape.Height, shape.Depth = 37, 11, 5
        shape.Format, shape.NumChannels = cu.CUarray_format.CU_AD_FORMAT_FLOAT, 2
        array = check(cu.cuArray3DCreate(shape))
        told = check(cu.cuArray3DGetDescriptor(array))
        assert (told.Width, told.Height, told.Depth, told.NumChannels) == (37, 11, 5, 2)

        source = np.random.default_rng(1).random((5, 13, 40, 2), dtype=np.float32)  # rows and slices have room to spare
        copy = cu.CUDA_MEMCPY3D()
        copy.srcMemoryType = cu.CUmemorytype.CU_MEMORYTYPE_HOST
        copy.srcHost, copy.srcPitch, copy.srcHeight = source.ctypes.data, 40 * 8, 13
        copy.dstMemoryType, copy.dstArray = cu.CUmemorytype.CU_MEMORYTYPE_ARRAY, array
        copy.WidthInBytes, copy.Height, copy.Depth = 37 * 8, 11, 5
        check(cu.cuMemcpy3D(copy))

        # A part of it: first within the device, then to the host.
        pitch = 512
        memory = check(cu.cuMemAlloc(pitch * 4 * 2))
        part = cu.CUDA_MEMCPY3D()
        part.srcMemoryType, part.srcArray = cu.CUmemorytype.CU_MEMORYTYPE_ARRAY, array
        part.srcXInBytes, part.srcY, part.srcZ = 3 * 8, 2, 1
        part.dstMemoryType, part.dstDevice = cu.CUmemorytype.CU_MEMORYTYPE_DEVICE, memory
        part.dstPitch, part.dstHeight = pitch, 4
        part.WidthInBytes, part.Height, part.Depth = 10 * 8, 4, 2
        stream = check(cu.cuStreamCreate(0))
        check(cu.cuMemcpy3DAsync(part, stream))
        check(cu.cuStreamSynchronize(stream))
        rows = download(memory, np.empty((2, 4, pitch // 8, 2), np.float32))
        np.testing.assert_array_equal(rows[:, :, :10], source[1:3, 2:6, 3:13])

        whole = np.zeros((5, 11, 37, 2), np.float32)
        back = cu.CUDA_MEMCPY3D()
        back.srcMemoryType, back.srcArray = cu.CUmemorytype.CU_MEMORYTYPE_ARRAY, array
        back.dstMemoryType, back.dstHost = cu.CUmemorytype.CU_MEMORYTYPE_HOST, whole.ctypes.data
        back.WidthInBytes, back.Height, back.Depth = 37 * 8, 11, 5
        check(cu.cuMemcpy3D(back))
        np.testing.assert_array_equal(whole, source[:, :11, :37])

        back.srcY = 1  # one row past the end
        assert cu.cuMemcpy3D(back)[0] == cu.CUresult.CUDA_ERROR_INVALID_VALUE
        check(cu.cuArrayDestroy(array))
        assert cu.cuArrayDestroy(array)[0] == cu.CUresult.CUDA_ERROR_INVALID_HANDLE
        print("ok")
        """
    )


def test_one_dimensional_copies_and_mipmaps(share: Share) -> None:
    share.run(
        """
        start()
        line = cu.CUDA_ARRAY_DESCRIPTOR()
        line.Width, line.Height = 64, 0
        line.Format, line.NumChannels = cu.CUarray_format.CU_AD_FORMAT_UNSIGNED_INT8, 1
        first, second = check(cu.cuArrayCreate(line)), check(cu.cuArrayCreate(line))
        data = np.arange(64, dtype=np.uint8)
        check(cu.cuMemcpyHtoA(first, 0, data.ctypes.data, 64))
        check(cu.cuMemcpyAtoA(second, 16, first, 0, 48))
        memory = upload(np.zeros(64, np.uint8))
        check(cu.cuMemcpyAtoD(memory, second, 16, 48))
        check(cu.cuMemcpyDtoA(first, 60, memory, 4))
        out = np.zeros(64, np.uint8)
        check(cu.cuMemcpyAtoH(out.ctypes.data, first, 0, 64))
        assert out.tolist() == [*range(60), 0, 1, 2, 3]

        shape = cu.CUDA_ARRAY3D_DESCRIPTOR()
        shape.Width, shape.Height, shape.Depth = 16, 16, 0
        shape.Format, shape.NumChannels = cu.CUarray_format.CU_AD_FORMAT_HALF, 4
        mipmapped = check(cu.cuMipmappedArrayCreate(shape, 3))
        level = check(cu.cuMipmappedArrayGetLevel(mipmapped, 2))
        assert int(level) == int(check(cu.cuMipmappedArrayGetLevel(mipmapped, 2)))
        assert check(cu.cuArray3DGetDescriptor(level)).Width == 4
        assert cu.cuArrayDestroy(level)[0] == cu.CUresult.CUDA_ERROR_INVALID_HANDLE  # it goes with its parent
        check(cu.cuMipmappedArrayDestroy(mipmapped))
        assert cu.cuArray3DGetDescriptor(level)[0] == cu.CUresult.CUDA_ERROR_INVALID_HANDLE
        print("ok")
        """
    )


def test_arrays_count_against_the_share(share: Share) -> None:
    share.run(
        """
        start()
        shape = cu.CUDA_ARRAY3D_DESCRIPTOR()
        shape.Width, shape.Height, shape.Depth = 1024, 1024, 16
        shape.Format, shape.NumChannels = cu.CUarray_format.CU_AD_FORMAT_FLOAT, 1
        kept = [check(cu.cuArray3DCreate(shape)) for _ in range(3)]  # 64 MiB each, of 256
        used = counters()["worker"]["memory_used"][0]
        assert used >= 192 << 20, used
        shape.Depth = 32
        assert cu.cuArray3DCreate(shape)[0] == cu.CUresult.CUDA_ERROR_OUT_OF_MEMORY
        for array in kept:
            check(cu.cuArrayDestroy(array))
        assert counters()["worker"]["memory_used"][0] == used - (192 << 20)
        other = check(cu.cuCtxCreate(None, 0, 0))
        check(cu.cuArray3DCreate(shape))
        check(cu.cuCtxDestroy(other))  # the array goes with it
        assert counters()["worker"]["memory_used"][0] == used - (192 << 20)
        print("ok")
        """
    )


def test_texture_and_surface_objects_tell_what_they_were_made_of(share: Share) -> None:
    share.run(
        """
        start()
        shape = cu.CUDA_ARRAY3D_DESCRIPTOR()
        shape.Width, shape.Height, shape.Depth = 32, 32, 0
        shape.Format, shape.NumChannels = cu.CUarray_format.CU_AD_FORMAT_FLOAT, 1
        shape.Flags = cu.CUDA_ARRAY3D_SURFACE_LDST
        array = check(cu.cuArray3DCreate(shape))
        resource = cu.CUDA_RESOURCE_DESC()
        resource.resType = cu.CUresourcetype.CU_RESOURCE_TYPE_ARRAY
        resource.res.array.hArray = array
        sampling = cu.CUDA_TEXTURE_DESC()
        sampling.filterMode = cu.CUfilter_mode.CU_TR_FILTER_MODE_LINEAR
        sampling.borderColor = [0.25, 0.5, 0.75, 1.0]
        texture = check(cu.cuTexObjectCreate(resource, sampling, None))
        assert int(check(cu.cuTexObjectGetResourceDesc(texture)).res.array.hArray) == int(array)
        assert check(cu.cuTexObjectGetTextureDesc(texture)).borderColor == [0.25, 0.5, 0.75, 1.0]
        assert cu.cuTexObjectGetResourceViewDesc(texture)[0] == cu.CUresult.CUDA_ERROR_INVALID_VALUE
        surface = check(cu.cuSurfObjectCreate(resource))
        assert int(check(cu.cuSurfObjectGetResourceDesc(surface)).res.array.hArray) == int(array)
        check(cu.cuSurfObjectDestroy(surface))
        check(cu.cuTexObjectDestroy(texture))
        assert cu.cuTexObjectDestroy(texture)[0] == cu.CUresult.CUDA_ERROR_INVALID_HANDLE
        resource.res.array.hArray = cu.CUarray(12345)  # made up
        assert cu.cuTexObjectCreate(resource, sampling, None)[0] == cu.CUresult.CUDA_ERROR_INVALID_HANDLE

        linear = cu.CUDA_RESOURCE_DESC()
        linear.resType = cu.CUresourcetype.CU_RESOURCE_TYPE_LINEAR
        linear.res.linear.devPtr = upload(np.arange(256, dtype=np.float32))
        linear.res.linear.format, linear.res.linear.numChannels = cu.CUarray_format.CU_AD_FORMAT_FLOAT, 1
        linear.res.linear.sizeInBytes = 1024
        texture = check(cu.cuTexObjectCreate(linear, cu.CUDA_TEXTURE_DESC(), None))
        assert check(cu.cuTexObjectGetResourceDesc(texture)).res.linear.sizeInBytes == 1024
        check(cu.cuTexObjectDestroy(texture))
        print("ok")
        """
    )


def test_texture_references_keep_their_state_in_the_driver(share: Share) -> None:
    share.run(
        """
        start()
        reference = check(cu.cuTexRefCreate())
        check(cu.cuTexRefSetFilterMode(reference, cu.CUfilter_mode.CU_TR_FILTER_MODE_LINEAR))
        check(cu.cuTexRefSetFlags(reference, cu.CU_TRSF_NORMALIZED_COORDINATES))
        check(cu.cuTexRefSetMipmapLevelClamp(reference, 0.5, 2.5))
        assert check(cu.cuTexRefGetFilterMode(reference)) == cu.CUfilter_mode.CU_TR_FILTER_MODE_LINEAR
        assert check(cu.cuTexRefGetFlags(reference)) == cu.CU_TRSF_NORMALIZED_COORDINATES
        assert check(cu.cuTexRefGetMipmapLevelClamp(reference)) == (0.5, 2.5)
        memory = upload(np.zeros(1024, np.float32))
        assert check(cu.cuTexRefSetAddress(reference, memory, 4096)) == 0
        assert int(check(cu.cuTexRefGetAddress(reference))) == int(memory)
        line = cu.CUDA_ARRAY_DESCRIPTOR()
        line.Width, line.Height = 8, 8
        line.Format, line.NumChannels = cu.CUarray_format.CU_AD_FORMAT_SIGNED_INT16, 2
        array = check(cu.cuArrayCreate(line))
        check(cu.cuTexRefSetArray(reference, array, cu.CU_TRSA_OVERRIDE_FORMAT))
        assert int(check(cu.cuTexRefGetArray(reference))) == int(array)
        assert check(cu.cuTexRefGetFormat(reference))[1] == 2
        check(cu.cuTexRefDestroy(reference))
        assert cu.cuTexRefGetFlags(reference)[0] == cu.CUresult.CUDA_ERROR_INVALID_HANDLE
        print("ok")
        """
    )
