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


def test_the_software_gpu_has_no_texture_references(share: Share) -> None:
    share.run(
        """
        start()
        assert cu.cuTexRefCreate()[0] == cu.CUresult.CUDA_ERROR_NOT_SUPPORTED
        print("ok")
        """
    )


def test_a_batch_of_three_dimensional_copies_goes_in_all_directions(share: Share) -> None:
    share.run(
        """
        start()
        stream = check(cu.cuStreamCreate(1))
        shape = cu.CUDA_ARRAY3D_DESCRIPTOR()
        shape.Width, shape.Height, shape.Depth = 20, 6, 4
        shape.Format, shape.NumChannels = cu.CUarray_format.CU_AD_FORMAT_FLOAT, 2
        array, other = check(cu.cuArray3DCreate(shape)), check(cu.cuArray3DCreate(shape))
        kinds = cu.CUmemcpy3DOperandType
        orders = cu.CUmemcpySrcAccessOrder

        def pointer(operand, address, row=0, layer=0):
            operand.type = kinds.CU_MEMCPY_OPERAND_TYPE_POINTER
            operand.op.ptr.ptr = cu.CUdeviceptr(int(address))
            operand.op.ptr.rowLength, operand.op.ptr.layerHeight = row, layer

        def of_array(operand, array, x=0, y=0, z=0):
            operand.type = kinds.CU_MEMCPY_OPERAND_TYPE_ARRAY
            operand.op.array.array = array
            operand.op.array.offset.x, operand.op.array.offset.y, operand.op.array.offset.z = x, y, z

        def operation(extent, order=orders.CU_MEMCPY_SRC_ACCESS_ORDER_STREAM):
            made = cu.CUDA_MEMCPY3D_BATCH_OP()
            made.extent.width, made.extent.height, made.extent.depth = extent
            made.srcAccessOrder = order
            return made

        # Elements of 8 bytes. The host's rows are 25 elements long, its layers 7 rows high.
        source = np.random.default_rng(2).random((4, 7, 25, 2), dtype=np.float32)
        fill, second = operation((20, 6, 4)), operation((20, 6, 4))
        pointer(fill.src, source.ctypes.data, 25, 7)
        of_array(fill.dst, array)
        pointer(second.src, source.ctypes.data, 25, 7)
        of_array(second.dst, other)
        check(cu.cuMemcpy3DBatchAsync(2, [fill, second], 0, stream))

        memory = upload(np.zeros(4 * 6 * 20 * 2, np.float32))
        whole = np.zeros((4, 6, 20, 2), np.float32)
        part = np.zeros((2, 3, 10, 2), np.float32)
        down, out = operation((20, 6, 4)), operation((10, 3, 2), orders.CU_MEMCPY_SRC_ACCESS_ORDER_ANY)
        of_array(down.src, array)
        pointer(down.dst, memory)
        of_array(out.src, other, 5, 2, 1)
        pointer(out.dst, part.ctypes.data)
        asks = counters()["asks_by_name"].get("cuArray3DGetDescriptor_v2", [0])[0]
        assert asks == 2, "each array's elements are asked for once"
        check(cu.cuMemcpy3DBatchAsync(2, [down, out], 0, stream))
        back = operation((20 * 8, 6, 4))  # between pointers an element is a byte
        pointer(back.src, memory)
        pointer(back.dst, whole.ctypes.data)
        check(cu.cuMemcpy3DWithAttributesAsync(back, 0, stream))
        check(cu.cuStreamSynchronize(stream))
        np.testing.assert_array_equal(whole, source[:, :6, :20])
        np.testing.assert_array_equal(part, source[1:3, 2:5, 5:15])
        assert counters()["asks_by_name"]["cuArray3DGetDescriptor_v2"][0] == asks

        # Nothing of a batch is done that is wrong anywhere.
        check(cu.cuMemsetD32(memory, 0, 4 * 6 * 20 * 2))
        wrong = operation((20, 6, 4))
        of_array(wrong.src, array)
        pointer(wrong.dst, memory, 19)
        bad = cu.CUresult.CUDA_ERROR_INVALID_VALUE
        assert cu.cuMemcpy3DBatchAsync(2, [down, wrong], 0, stream)[0] == bad
        check(cu.cuStreamSynchronize(stream))
        assert not download(memory, whole).any()
        assert cu.cuMemcpy3DBatchAsync(1, [down], 0, 0)[0] == bad, "not for the legacy stream"
        assert cu.cuMemcpy3DBatchAsync(1, [down], 1, stream)[0] == bad
        assert cu.cuMemcpy3DBatchAsync(1, [operation((1, 1, 0))], 0, stream)[0] == bad
        old = ctypes.CDLL("libcuda.so.1")  # CUDA 12's form tells which one was wrong
        failed = ctypes.c_size_t(9)
        assert old.cuMemcpy3DBatchAsync(
            ctypes.c_size_t(1), ctypes.c_void_p(wrong.getPtr()), ctypes.byref(failed), ctypes.c_ulonglong(0),
            ctypes.c_void_p(int(stream))) == 1
        assert failed.value == 0
        print("ok")
        """
    )
