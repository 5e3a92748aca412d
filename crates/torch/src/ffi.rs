//! The C border: declarations of the shim's functions.
//!
//! Nothing is thrown across the border to C++: each function of the shim is `noexcept` and has its errors as values
//! (`tests/it/border.rs` reads the sources for that).

use std::ffi::{c_char, c_void};

pub(crate) use torch_sys::C_tensor;

pub(crate) const OK: i32 = 0;
pub(crate) const OUT_OF_MEMORY: i32 = 1;
pub(crate) const ERROR: i32 = 2;

/// The CPU in functions that take a generator's device.
pub(crate) const CPU: i32 = -1;

#[repr(C)]
#[must_use]
pub(crate) struct Status {
    pub(crate) kind: i32,
    pub(crate) message: *mut c_char,
}

#[repr(C)]
#[derive(Default)]
pub(crate) struct HostCounts {
    pub(crate) allocated: i64,
    pub(crate) peak: i64,
    pub(crate) allocations: u64,
    pub(crate) refusals: u64,
}

#[repr(C)]
#[derive(Default)]
pub(crate) struct HostRefusal {
    pub(crate) requested: u64,
    pub(crate) allocated: u64,
    pub(crate) line: i64,
    pub(crate) injected: i32,
}

#[repr(C)]
#[derive(Clone, Default)]
pub(crate) struct HostEntry {
    pub(crate) serial: u64,
    pub(crate) bytes: u64,
    pub(crate) nanoseconds: i64,
    pub(crate) action: i32,
}

#[repr(C)]
#[derive(Default)]
pub(crate) struct CudaStats {
    pub(crate) allocated: i64,
    pub(crate) allocated_peak: i64,
    pub(crate) reserved: i64,
    pub(crate) reserved_peak: i64,
    pub(crate) retries: i64,
    pub(crate) ooms: i64,
}

#[repr(C)]
#[derive(Default)]
pub(crate) struct LibraryFacts {
    pub(crate) threads: i32,
    pub(crate) openmp_dynamic: i32,
    pub(crate) mkl_threads: i32,
    pub(crate) mkl_dynamic: i32,
    pub(crate) mkl_setting: i32,
    pub(crate) mkl_auto_branch: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AutocastSetting {
    enabled: i32,
    dtype: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct AdamwRule {
    pub(crate) learning_rate: f64,
    pub(crate) beta1: f64,
    pub(crate) beta2: f64,
    pub(crate) weight_decay: f64,
    pub(crate) epsilon: f64,
}

#[repr(C)]
pub(crate) struct RanksAddress {
    pub(crate) host: *const c_char,
    pub(crate) prefix: *const c_char,
    pub(crate) network_interface: *const c_char,
    pub(crate) rank: i32,
    pub(crate) world: i32,
    pub(crate) port: u16,
    pub(crate) serves: i32,
    pub(crate) is_local: i32,
    pub(crate) timeout_ms: i64,
}

pub(crate) type RunSegment = extern "C" fn(*const c_void, *const *mut C_tensor, usize, *mut c_void);
pub(crate) type DropSegment = extern "C" fn(*mut c_void);

unsafe extern "C" {
    pub(crate) fn lt_text_free(text: *mut c_char);

    pub(crate) fn lt_host_install();
    pub(crate) fn lt_host_uninstall();
    pub(crate) fn lt_host_installed() -> i32;
    pub(crate) fn lt_host_counts(out: *mut HostCounts);
    pub(crate) fn lt_host_reset_peak();
    pub(crate) fn lt_host_keep_little();
    pub(crate) fn lt_host_trim();
    pub(crate) fn lt_host_set_line(bytes: i64);
    pub(crate) fn lt_host_inject(skip: u64, times: u64);
    pub(crate) fn lt_host_last_refusal(out: *mut HostRefusal) -> i32;
    pub(crate) fn lt_host_record_start();
    pub(crate) fn lt_host_record_stop() -> usize;
    pub(crate) fn lt_host_record_take(out: *mut HostEntry, count: usize);
    pub(crate) fn lt_host_touch_pair(bytes: usize) -> Status;

    pub(crate) fn lt_cuda_driver_present() -> i32;
    pub(crate) fn lt_cuda_load() -> Status;
    pub(crate) fn lt_cuda_start(count: *mut i32) -> Status;
    pub(crate) fn lt_cuda_memory(device: i32, free: *mut u64, total: *mut u64) -> Status;
    pub(crate) fn lt_cuda_stats(device: i32, out: *mut CudaStats) -> Status;
    pub(crate) fn lt_cuda_reset_peaks(device: i32) -> Status;
    pub(crate) fn lt_cuda_empty_cache() -> Status;
    pub(crate) fn lt_cuda_set_fraction(device: i32, fraction: f64) -> Status;
    pub(crate) fn lt_cuda_record_history(max_entries: u64) -> Status;
    pub(crate) fn lt_cuda_snapshot(path: *const c_char) -> Status;
    pub(crate) fn lt_cuda_capability(device: i32, major: *mut i32, minor: *mut i32) -> Status;
    pub(crate) fn lt_cuda_uuid(device: i32, out: *mut u8) -> Status;
    pub(crate) fn lt_cuda_name(device: i32, out: *mut c_char, length: i32) -> Status;

    pub(crate) fn lt_rng_get(device: i32, out: *mut *mut C_tensor) -> Status;
    pub(crate) fn lt_rng_set(device: i32, state: *const C_tensor) -> Status;
    pub(crate) fn lt_rng_seed(device: i32, seed: u64) -> Status;
    pub(crate) fn lt_autocast_enter(cuda: i32, enabled: i32, dtype: i32, before: *mut AutocastSetting) -> Status;
    pub(crate) fn lt_autocast_leave(cuda: i32, before: AutocastSetting);
    pub(crate) fn lt_set_deterministic(on: i32) -> Status;
    pub(crate) fn lt_set_matmul_precision(precision: *const c_char) -> Status;

    pub(crate) fn lt_library_facts(out: *mut LibraryFacts) -> Status;
    pub(crate) fn lt_library_texts(out: *mut *mut c_char) -> Status;
    pub(crate) fn lt_set_threads(threads: i32, team: *mut i32) -> Status;
    pub(crate) fn lt_warm_up_libraries() -> Status;

    pub(crate) fn lt_has_update_kernel(parameters: *const *const C_tensor, count: usize, out: *mut i32) -> Status;
    pub(crate) fn lt_adamw(
        parameters: *const *const C_tensor,
        values: *const *const C_tensor,
        grads: *const *const C_tensor,
        first: *const *const C_tensor,
        second: *const *const C_tensor,
        count: usize,
        step: *const C_tensor,
        step_value: f64,
        rule: AdamwRule,
        by_kernel: i32,
        factor: *const C_tensor,
    ) -> Status;
    pub(crate) fn lt_check_dense(tensor: *const C_tensor) -> Status;
    pub(crate) fn lt_host_bytes(bytes: i64, pinned: i32, out: *mut *mut C_tensor) -> Status;
    pub(crate) fn lt_adamw_staged(
        parameter: *const C_tensor,
        gradient: *const C_tensor,
        first: *const C_tensor,
        second: *const C_tensor,
        stage: *const C_tensor,
        step: *const C_tensor,
        step_value: f64,
        rule: AdamwRule,
        by_kernel: i32,
        factor: *const C_tensor,
        done: *mut i64,
    ) -> Status;
    pub(crate) fn lt_grad_norm(grads: *const *const C_tensor, count: usize, out: *mut *mut C_tensor) -> Status;
    pub(crate) fn lt_release_grads(parameters: *const *const C_tensor, count: usize) -> Status;
    pub(crate) fn lt_zero_grads(
        parameters: *const *const C_tensor,
        grads: *const *const C_tensor,
        count: usize,
    ) -> Status;
    pub(crate) fn lt_linear(
        x: *const C_tensor,
        weight: *const C_tensor,
        bias: *const C_tensor,
        out: *mut *mut C_tensor,
    ) -> Status;
    pub(crate) fn lt_narrow_keep(keeps: i32);
    pub(crate) fn lt_narrow_refresh(changed: *const *const C_tensor, count: usize) -> Status;
    pub(crate) fn lt_own_stream(device: i32) -> Status;
    pub(crate) fn lt_graph_pool(out: *mut u64) -> Status;
    pub(crate) fn lt_graph_begin(device: i32, pool: u64, out: *mut *mut c_void) -> Status;
    pub(crate) fn lt_graph_end(graph: *mut c_void) -> Status;
    pub(crate) fn lt_graph_hand_over(graph: *mut c_void, room: u64) -> Status;
    pub(crate) fn lt_graph_abandon(graph: *mut c_void);
    pub(crate) fn lt_graph_replay(graph: *mut c_void) -> Status;
    pub(crate) fn lt_graph_free(graph: *mut c_void);
    pub(crate) fn lt_clip_factor(norm: *const C_tensor, limit: f64, out: *mut *mut C_tensor) -> Status;
    pub(crate) fn lt_scale_grads(grads: *const *const C_tensor, count: usize, factor: *const C_tensor) -> Status;
    pub(crate) fn lt_unscale(
        grads: *const *const C_tensor,
        count: usize,
        found: *const C_tensor,
        inverse_scale: *const C_tensor,
    ) -> Status;
    pub(crate) fn lt_loss_kernel_check(device: i32) -> Status;
    pub(crate) fn lt_linear_cross_entropy(
        hidden: *const C_tensor,
        weight: *const C_tensor,
        targets: *const C_tensor,
        chunks: i64,
        out: *mut *mut C_tensor,
    ) -> Status;
    pub(crate) fn lt_add_norm(
        x: *const C_tensor,
        delta: *const C_tensor,
        bias: *const C_tensor,
        gain: *const C_tensor,
        shift: *const C_tensor,
        epsilon: f64,
        sum: *mut *mut C_tensor,
        normed: *mut *mut C_tensor,
    ) -> Status;
    pub(crate) fn lt_add(
        x: *const C_tensor,
        delta: *const C_tensor,
        bias: *const C_tensor,
        sum: *mut *mut C_tensor,
    ) -> Status;
    pub(crate) fn lt_gelu(x: *const C_tensor, bias: *const C_tensor, out: *mut *mut C_tensor) -> Status;
    pub(crate) fn lt_embed(
        ids: *const C_tensor,
        table: *const C_tensor,
        positions: *const C_tensor,
        out: *mut *mut C_tensor,
    ) -> Status;
    pub(crate) fn lt_heads(
        x: *const C_tensor,
        weight: *const C_tensor,
        bias: *const C_tensor,
        heads: i64,
        queries: *mut *mut C_tensor,
        keys: *mut *mut C_tensor,
        values: *mut *mut C_tensor,
    ) -> Status;
    pub(crate) fn lt_fused_check(device: i32) -> Status;
    pub(crate) fn lt_upload(tensor: *const C_tensor, device: i32, is_ahead: i32, out: *mut *mut C_tensor) -> Status;
    pub(crate) fn lt_read_begin(tensor: *const C_tensor, out: *mut *mut c_void) -> Status;
    pub(crate) fn lt_read_end(handle: *mut c_void, out: *mut f64) -> Status;
    pub(crate) fn lt_read_free(handle: *mut c_void);
    pub(crate) fn lt_profile_begin(with_cuda: i32) -> Status;
    pub(crate) fn lt_profile_end(path: *const c_char) -> Status;
    pub(crate) fn lt_mark_spans(device: i32, span: *const c_char, begins: *const c_char, ends: *const c_char)
    -> Status;
    pub(crate) fn lt_span_begin(name: *const c_char) -> *mut c_void;
    pub(crate) fn lt_span_end(span: *mut c_void);
    pub(crate) fn lt_copy_quietly(target: *const C_tensor, source: *const C_tensor) -> Status;

    pub(crate) fn lt_ranks_store(address: *const RanksAddress, out: *mut *mut c_void) -> Status;
    pub(crate) fn lt_ranks_connect(handle: *mut c_void, address: *const RanksAddress) -> Status;
    pub(crate) fn lt_ranks_hang_up(handle: *mut c_void);
    pub(crate) fn lt_ranks_leave(handle: *mut c_void);
    pub(crate) fn lt_ranks_set(handle: *mut c_void, key: *const c_char, value: *const c_char, length: usize) -> Status;
    pub(crate) fn lt_ranks_check(handle: *mut c_void, key: *const c_char, there: *mut i32) -> Status;
    pub(crate) fn lt_ranks_nccl_id(out: *mut u8) -> Status;
    pub(crate) fn lt_ranks_nccl_join(
        handle: *mut c_void,
        id: *const u8,
        rank: i32,
        world: i32,
        trial: *const C_tensor,
        trial_ms: i64,
        timeout_ms: i64,
    ) -> Status;
    pub(crate) fn lt_ranks_nccl_leave(handle: *mut c_void);
    pub(crate) fn lt_ranks_sum(handle: *mut c_void, tensor: *const C_tensor) -> Status;
    pub(crate) fn lt_ranks_broadcast(handle: *mut c_void, tensor: *const C_tensor, root: i32) -> Status;
    pub(crate) fn lt_ranks_send(handle: *mut c_void, tensor: *const C_tensor, target: i32) -> Status;
    pub(crate) fn lt_ranks_receive(handle: *mut c_void, tensor: *const C_tensor, source: i32) -> Status;
    pub(crate) fn lt_ranks_send_number(handle: *mut c_void, number: i64, target: i32) -> Status;
    pub(crate) fn lt_ranks_receive_number(handle: *mut c_void, number: *mut i64, source: i32) -> Status;
    pub(crate) fn lt_ranks_gather(handle: *mut c_void, rows: *mut u8, length: usize) -> Status;

    pub(crate) fn lt_leave_out_stacks();
    pub(crate) fn lt_drain_backward();
    pub(crate) fn lt_grad_enabled() -> i32;
    pub(crate) fn lt_recompute_begin(cuda_device: i32, out: *mut *mut c_void) -> Status;
    pub(crate) fn lt_recompute_abandon(mark: *mut c_void);
    pub(crate) fn lt_recompute_attach(
        mark: *mut c_void,
        inputs: *const *const C_tensor,
        input_count: usize,
        outputs: *const *mut C_tensor,
        output_count: usize,
        buffers: *const *const C_tensor,
        buffer_count: usize,
        to_host: i32,
        data: *mut c_void,
        run: RunSegment,
        drop: DropSegment,
    ) -> Status;
    pub(crate) fn lt_run_output(run: *mut c_void, output: *const C_tensor) -> Status;
    pub(crate) fn lt_run_failed(run: *mut c_void, kind: i32, message: *const c_char, length: usize);
}

/// The raw pointers of a list of tensors, in the shape the shim takes them.
/// A tensor that may be left out.
pub(crate) fn pointer(tensor: Option<&tch::Tensor>) -> *const C_tensor {
    tensor.map_or(std::ptr::null(), tch::Tensor::as_ptr)
}

pub(crate) fn pointers<T: AsRef<tch::Tensor>>(tensors: &[T]) -> Vec<*const C_tensor> {
    tensors.iter().map(|tensor| tensor.as_ref().as_ptr()).collect()
}
