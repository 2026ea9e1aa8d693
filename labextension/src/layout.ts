import type { GpuPool } from './tokens';

/** How a segment of a device bar looks. */
export type SegmentKind = 'mine' | 'other' | 'free';

/** A piece of a device bar, positions in percent of the bar. */
export interface ISegment {
  key: string;
  kind: SegmentKind;
  idle: boolean;
  start: number;
  width: number;
  share: GpuPool.IDeviceShare | null;
}

/**
 * Cuts the bar of a device into its shares, own ones first, then the free
 * rest. Widths are exact: together they never exceed 100 even when the pool
 * reports more than a whole device, so a bar cannot overflow its box.
 */
export function layoutDevice(device: GpuPool.IDevice): ISegment[] {
  const shares = sortShares(device.shares);
  const lent = shares.reduce((sum, share) => sum + Math.max(0, share.milli), 0);
  const scale = 100 / Math.max(1000, lent);
  const segments: ISegment[] = [];
  let start = 0;
  for (const share of shares) {
    const width = Math.max(0, share.milli) * scale;
    segments.push({
      key: share.lease_id,
      kind: share.mine ? 'mine' : 'other',
      idle: !share.in_use,
      start,
      width,
      share
    });
    start += width;
  }
  if (start < 100 - 1e-9) {
    segments.push({
      key: 'free',
      kind: 'free',
      idle: false,
      start,
      width: 100 - start,
      share: null
    });
  }
  return segments;
}

/** Own shares first, then by user and lease, so that bars do not jump. */
export function sortShares(
  shares: readonly GpuPool.IDeviceShare[]
): GpuPool.IDeviceShare[] {
  return [...shares].sort(
    (a, b) =>
      Number(b.mine) - Number(a.mine) ||
      a.user.localeCompare(b.user) ||
      a.lease_id.localeCompare(b.lease_id)
  );
}
