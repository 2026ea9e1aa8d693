import type { GpuPool } from '../api/types';

/** Three points; of the first nobody knows anything. */
export function someColumns(): GpuPool.IColumns {
  const values = (...known: number[]) => [null, ...known];
  return {
    t: [1_700_000_000, 1_700_000_060, 1_700_000_120],
    capacity_milli: values(2000, 2000),
    held_milli: values(200, 500),
    used_milli: values(50, 100),
    idle_milli: values(150, 400),
    capacity_mib: values(16384, 16384),
    held_mib: values(1024, 2048),
    memory_mib: values(512, 512),
    waiting_milli: values(0, 500),
    waiting: values(0, 1),
    to_device_bps: values(1e6, 0),
    from_device_bps: values(0, 1e3)
  };
}

export function someSums(changes: Partial<GpuPool.ISums> = {}): GpuPool.ISums {
  return {
    seconds: 120,
    capacity_hours: 4,
    held_hours: 1,
    used_hours: 0.25,
    idle_hours: 0.75,
    waiting_hours: 0,
    memory_gib_hours: 2,
    to_device_bytes: 1024,
    from_device_bytes: 0,
    ...changes
  };
}

export function aMember(
  name: string,
  changes: Partial<GpuPool.IMember> = {}
): GpuPool.IMember {
  return { ...someSums(), name, user: '', label: '', ...changes };
}

export function aSeries(
  changes: Partial<GpuPool.IHistory> = {}
): GpuPool.IHistory {
  return {
    from: 1_700_000_000,
    to: 1_700_000_180,
    step: 60,
    points: someColumns(),
    total: someSums(),
    members: [aMember('vm')],
    admin: false,
    ...changes
  };
}

export function anAdministration(
  changes: Partial<GpuPool.IAdministration> = {}
): GpuPool.IAdministration {
  return {
    admin: true,
    nodes: [
      {
        name: 'vm',
        connected: true,
        lost: false,
        silent_seconds: 1,
        drained: false,
        drain_reason: '',
        node_pool: 'default',
        sharing: 'isolated',
        devices: 2,
        leases: 1
      }
    ],
    projects: [
      {
        path: 'research/vision',
        deserved_milli: 500,
        limit_milli: null,
        weight: 2,
        priority: 0,
        allocated_milli: 700,
        waiting_milli: 0,
        fair_share_milli: 800,
        real_deserved_milli: 500,
        alerts: []
      }
    ],
    warnings: [],
    capacity_milli: 2000,
    ...changes
  };
}
