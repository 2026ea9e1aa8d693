import type { GpuPool } from '../api/types';

/** How a segment of a bar looks. */
export type SegmentKind = 'mine' | 'other' | 'free' | 'unusable';

/** A piece of a device bar, positions in percent of the bar. */
export interface ISegment {
  key: string;
  kind: SegmentKind;
  idle: boolean;
  start: number;
  width: number;
  share: GpuPool.IDeviceShare | null;
}

/** The devices of one node, in the pool's order. */
export interface INodeGroup {
  node: string;
  devices: GpuPool.IDevice[];
  /** Of its devices that lend, milli-GPU. */
  free: number;
  lending: number;
  mine: boolean;
}

/** With more devices than this nodes and devices can be folded. */
const FEW_DEVICES = 4;
/** With more devices than this nodes without own shares begin folded. */
const MANY_DEVICES = 8;

/**
 * Cuts the bar of a device into its shares, own ones first, then the rest.
 * Widths are exact: together they never exceed 100 even when the pool
 * reports more than a whole device, so a bar cannot overflow its box.
 */
export function layoutDevice(device: GpuPool.IDevice): ISegment[] {
  const shares = sortShares(device.shares);
  const pieces = shares.map(share => ({
    key: share.lease_id,
    kind: share.mine ? ('mine' as const) : ('other' as const),
    idle: !share.in_use,
    milli: share.milli,
    share
  }));
  return laidOut(pieces, 1000, device.healthy ? 'free' : 'unusable');
}

function laidOut(
  pieces: readonly (Omit<ISegment, 'start' | 'width'> & { milli: number })[],
  whole: number,
  rest: SegmentKind
): ISegment[] {
  const sum = pieces.reduce(
    (total, piece) => total + Math.max(0, piece.milli),
    0
  );
  const scale = 100 / Math.max(whole, sum);
  const segments: ISegment[] = [];
  let start = 0;
  for (const { milli, ...piece } of pieces) {
    const width = Math.max(0, milli) * scale;
    segments.push({ ...piece, start, width });
    start += width;
  }
  if (start < 100 - 1e-9) {
    segments.push({
      key: rest,
      kind: rest,
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

/** Devices by node, nodes in the pool's order. */
export function groupByNode(devices: readonly GpuPool.IDevice[]): INodeGroup[] {
  const groups = new Map<string, GpuPool.IDevice[]>();
  for (const device of devices) {
    groups.set(device.node, [...(groups.get(device.node) ?? []), device]);
  }
  return [...groups].map(([node, of]) => {
    const lending = of.filter(device => device.healthy);
    return {
      node,
      devices: of,
      free: lending.reduce((sum, device) => sum + device.free_milli, 0),
      lending: lending.length,
      mine: of.some(holdsMine)
    };
  });
}

/** Whether nodes get a heading of their own, to fold them; a few with one device each need none. */
export function showsNodes(groups: readonly INodeGroup[]): boolean {
  const several = groups.some(group => group.devices.length > 1);
  return (groups.length > 1 && several) || countDevices(groups) > MANY_DEVICES;
}

/** Whether a node begins unfolded. */
export function nodeOpens(
  group: INodeGroup,
  groups: readonly INodeGroup[]
): boolean {
  return (
    group.mine || groups.length === 1 || countDevices(groups) <= MANY_DEVICES
  );
}

/** Whether devices are one line each until they are unfolded. */
export function devicesFold(groups: readonly INodeGroup[]): boolean {
  return countDevices(groups) > FEW_DEVICES;
}

export function holdsMine(device: GpuPool.IDevice): boolean {
  return device.shares.some(share => share.mine);
}

function countDevices(groups: readonly INodeGroup[]): number {
  return groups.reduce((sum, group) => sum + group.devices.length, 0);
}
