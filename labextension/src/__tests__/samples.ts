import type { GpuPool } from '../api/types';

/** A sentence that is its words. */
export function words(value: string): GpuPool.ISaid {
  const params = { words: { kind: 'text' as const, value } };
  return { code: 'plain', params, text: value, first: value };
}

/** Several sentences, one behind the other. */
export function clauses(...parts: GpuPool.ISentence[]): GpuPool.ISaid {
  const value = parts.map(part => ({ kind: 'sentence' as const, value: part }));
  // The page has the catalogue: it never looks at the words of the server.
  return {
    code: 'clauses',
    params: { of: { kind: 'list', value } },
    text: '',
    first: ''
  };
}

/** Where the request of a kernel waits. */
export function aQueuePlace(
  part: Partial<GpuPool.IKernelQueuePlace> = {}
): GpuPool.IKernelQueuePlace {
  return {
    place: 1,
    reason: '',
    eta_seconds: null,
    explanation: null,
    takes: false,
    cell: false,
    asked: { share: '0.2', count: 1, project: '' },
    ...part
  };
}

/** A kernel as `GET api/kernels` shows it; what a test is about is named. */
export function aKernel(part: Partial<GpuPool.IKernel> = {}): GpuPool.IKernel {
  return {
    kernel_id: 'k1',
    name: 'python3',
    path: 'work/train.ipynb',
    label: 'train.ipynb',
    busy: false,
    session_id: null,
    state: 'none',
    held: false,
    by: null,
    auto: null,
    memory: null,
    share: null,
    device: null,
    devices: [],
    software: null,
    queue: null,
    idle: null,
    released: null,
    notice: null,
    returning: false,
    silent: false,
    project: null,
    reason: null,
    message: null,
    usage: null,
    ...part
  };
}

export function anAttachedKernel(
  part: Partial<GpuPool.IKernel> = {}
): GpuPool.IKernel {
  return aKernel({
    state: 'attached',
    held: true,
    by: 'sidebar',
    session_id: 's1',
    share: { milli: 200, mib: 1587, count: 1 },
    device: 'node1/0',
    devices: ['node1/0'],
    software: true,
    project: '',
    usage: aUsage(),
    ...part
  });
}

export function aUsage(part: Partial<GpuPool.IUsage> = {}): GpuPool.IUsage {
  return {
    device_seconds: 1.25,
    utilization: 0.4,
    memory_bytes: 300 * 1024 * 1024,
    memory_peak_bytes: 400 * 1024 * 1024,
    bytes_to_device: 1,
    bytes_from_device: 2,
    asks: 3,
    calls: 400,
    in_flight: false,
    work: '',
    kernel: '',
    work_seconds: 0,
    failure: 0,
    failure_name: '',
    failed_kernel: '',
    failed_cell: '',
    out_of_memory: null,
    ...part
  };
}

export function aWarnedKernel(
  countdown: number,
  part: Partial<GpuPool.IKernel> = {}
): GpuPool.IKernel {
  return anAttachedKernel({
    state: 'warned',
    idle: {
      seconds: 560,
      kernel_seconds: 560,
      gpu_seconds: 900,
      warn_at: 540,
      release_at: 600,
      countdown,
      choice_minutes: null,
      default_minutes: 10
    },
    ...part
  });
}

export function aShare(
  part: Partial<GpuPool.IDeviceShare> = {}
): GpuPool.IDeviceShare {
  return {
    lease_id: 'l1',
    session_id: 's1',
    user: 'bob',
    mine: false,
    kernel_id: null,
    label: 'other.ipynb',
    milli: 250,
    mib: 1984,
    state: 'attached',
    in_use: true,
    ...part
  };
}

export function aDevice(part: Partial<GpuPool.IDevice> = {}): GpuPool.IDevice {
  const shares = part.shares ?? [];
  return {
    id: 'node1/0',
    node: 'node1',
    name: 'Software GPU (gpupool)',
    software: true,
    healthy: true,
    health_reason: '',
    drained: false,
    total_mib: 8192,
    usable_mib: 7936,
    free_milli: 1000 - shares.reduce((sum, share) => sum + share.milli, 0),
    free_mib: 7936 - shares.reduce((sum, share) => sum + share.mib, 0),
    used_bytes: 0,
    ...part,
    shares
  };
}

export function aPool(part: Partial<GpuPool.IPool> = {}): GpuPool.IPool {
  const devices = part.devices ?? [aDevice()];
  const usable = devices.filter(device => device.healthy);
  return {
    ok: true,
    wrong_setting: null,
    startable: 'no',
    user: 'ann',
    devices,
    lenders: [],
    queue: [],
    queue_left_out: 0,
    totals: {
      milli: 1000 * usable.length,
      free_milli: usable.reduce((sum, device) => sum + device.free_milli, 0)
    },
    ...part
  };
}

export function aSample(
  part: Partial<GpuPool.IUsageSample> = {}
): GpuPool.IUsageSample {
  return {
    t: 1000,
    utilization: 0.5,
    memory_bytes: 300 * 1024 * 1024,
    to_device_bps: 2048,
    from_device_bps: 1024,
    ...part
  };
}

export function aQueueEntry(
  part: Partial<GpuPool.IQueueEntry> = {}
): GpuPool.IQueueEntry {
  return {
    place: 1,
    user: 'bob',
    mine: false,
    kernel_id: null,
    label: 'big.ipynb',
    milli: 800,
    mib: 6348,
    count: 1,
    reason: '0.5 of 0.8 is free',
    eta_seconds: 90,
    project: '',
    explanation: null,
    wants: [],
    ...part
  };
}

/** What the server announces. */
export function someDefaults(
  part: Partial<GpuPool.IDefaults> = {}
): GpuPool.IDefaults {
  return {
    share: '0.2',
    project: 'default',
    projects: [],
    error: null,
    wait_seconds: 60,
    idle_minutes: 10,
    idle_minutes_most: 1440,
    never_allowed: false,
    warn_seconds: 60,
    user: 'ann',
    admin: false,
    version: '0.1.0',
    ...part
  };
}

/** A share that went back because nothing used it. */
export function aRelease(
  part: Partial<GpuPool.IReleased> = {}
): GpuPool.IReleased {
  return {
    reason: 'idle',
    message: 'Released after 10 min without use.',
    draining: false,
    at: 0,
    age_seconds: 600,
    freed: { milli: 200, mib: 1587, count: 1, device: 'vm/0' },
    memory: { bytes: 0, place: 'host' },
    undo_seconds: 0,
    ...part
  };
}
