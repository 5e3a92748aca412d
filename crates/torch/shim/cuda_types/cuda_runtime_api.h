// The few CUDA names that LibTorch's c10/cuda headers mention, as opaque types of the same size.
//
// The torch wheel carries c10's headers and not CUDA's. Only the layout of one class of virtual functions is needed from
// c10, so these declarations are enough and no CUDA toolkit has to be installed. Nothing declared here is ever called.
#pragma once

#include <cstddef>

extern "C" {
typedef struct CUstream_st* cudaStream_t;
typedef struct CUevent_st* cudaEvent_t;
typedef struct CUgraph_st* cudaGraph_t;
typedef struct CUgraphExec_st* cudaGraphExec_t;
typedef int CUdevice;
typedef struct CUctx_st* CUcontext;
typedef enum CUresult_enum { CUDA_SUCCESS = 0 } CUresult;

enum cudaError { cudaSuccess = 0, cudaErrorNotReady = 600 };
typedef enum cudaError cudaError_t;
enum cudaStreamCaptureStatus {
  cudaStreamCaptureStatusNone = 0,
  cudaStreamCaptureStatusActive = 1,
  cudaStreamCaptureStatusInvalidated = 2
};
enum cudaStreamCaptureMode { cudaStreamCaptureModeGlobal = 0, cudaStreamCaptureModeRelaxed = 2 };
enum cudaMemcpyKind { cudaMemcpyDefault = 4 };

cudaError_t cudaGetLastError();
const char* cudaGetErrorString(cudaError_t);
cudaError_t cudaMemGetInfo(size_t*, size_t*);
cudaError_t cudaMemcpyAsync(void*, const void*, size_t, enum cudaMemcpyKind, cudaStream_t);
cudaError_t cudaStreamQuery(cudaStream_t);
cudaError_t cudaStreamSynchronize(cudaStream_t);
cudaError_t cudaStreamGetPriority(cudaStream_t, int*);
cudaError_t cudaStreamIsCapturing(cudaStream_t, enum cudaStreamCaptureStatus*);
cudaError_t cudaDeviceGetStreamPriorityRange(int*, int*);
cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode*);
}
