/** Use over the second that ended at `t`, Unix seconds of the server. */
export interface IUsageSample {
  t: number;
  /** Device time over wall time, 0..1. */
  utilization: number;
  memory_bytes: number;
  to_device_bps: number;
  from_device_bps: number;
}
