/** The last allocation that was refused, in bytes. */
export interface IOutOfMemory {
  asked: number;
  /** What the session may have on the device. */
  share: number;
  used: number;
  /** The largest piece that could have been had. */
  largest_free: number;
  /** A share of this size would have had room. */
  needed: number;
  /** Which of the kernel's devices. */
  device: number;
}

/** What a session has used, what runs now, and what broke it. */
export interface IKernelUsage {
  device_seconds: number;
  utilization: number;
  memory_bytes: number;
  memory_peak_bytes: number;
  bytes_to_device: number;
  bytes_from_device: number;
  asks: number;
  calls: number;
  in_flight: boolean;
  /**
   * What its devices do. `draining`: on after its lease has ended; `stopped`:
   * it goes on with the next lease.
   */
  work?: '' | 'running' | 'draining' | 'stopped';
  /** Short name of the kernel under way; empty where it has none. */
  kernel?: string;
  /** How long what is under way has run. */
  work_seconds?: number;
  /** The CUDA error that ended what the session can do; 0: none. */
  failure?: number;
  /** As people say it: `illegal address`. */
  failure_name?: string;
  failed_kernel?: string;
  /** The cell that broke it, such as `[3]`. */
  failed_cell?: string;
  out_of_memory?: IOutOfMemory | null;
}

/** Use over the second that ended at `t`, Unix seconds of the server. */
export interface IUsageSample {
  t: number;
  /** Device time over wall time, 0..1. */
  utilization: number;
  memory_bytes: number;
  to_device_bps: number;
  from_device_bps: number;
}
