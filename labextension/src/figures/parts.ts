import type { GpuPool } from '../api/types';
import { holdsMine, type INodeGroup } from './layout';

/*
 * What of a large pool is shown before anybody asks for the rest: what is one's
 * own, and a little of what is not.
 */

/** With more devices than this a pool is shown in parts, and can be filtered. */
export const MANY_DEVICES = 8;
/** So many nodes, and devices of a node that was unfolded, are shown at first. */
const FEW_NODES = 6;
const FEW_DEVICES = 8;
/** What a filter finds is shown whole up to so many. */
const MOST_FOUND = 64;

/** What is shown, and what is not yet. */
export interface IPart<T> {
  shown: readonly T[];
  more: readonly T[];
}

/** Nodes with own shares first, then a few others in the pool's order. */
export function firstNodes(
  groups: readonly INodeGroup[],
  filtered: boolean
): IPart<INodeGroup> {
  const ordered = [
    ...groups.filter(group => group.mine),
    ...groups.filter(group => !group.mine)
  ];
  const mine = groups.filter(group => group.mine).length;
  const most = filtered ? MOST_FOUND : Math.max(FEW_NODES, mine);
  // A button for a single one takes as much room as that one.
  return cut(ordered, ordered.length === most + 1 ? most + 1 : most);
}

/** Of a large pool's node one's own devices, or else the first few. */
export function firstDevices(
  devices: readonly GpuPool.IDevice[],
  large: boolean,
  filtered: boolean
): IPart<GpuPool.IDevice> {
  if (!large) {
    return { shown: devices, more: [] };
  }
  if (filtered) {
    return cut(devices, MOST_FOUND);
  }
  const mine = devices.filter(holdsMine);
  return mine.length > 0
    ? { shown: mine, more: devices.filter(device => !holdsMine(device)) }
    : cut(devices, FEW_DEVICES);
}

function cut<T>(all: readonly T[], most: number): IPart<T> {
  return { shown: all.slice(0, most), more: all.slice(most) };
}

/**
 * The devices that a text speaks of: each of its words is part of the node, the
 * kind, or a holder or notebook there; `free` is for those with room.
 */
export function filtered(
  devices: readonly GpuPool.IDevice[],
  text: string
): readonly GpuPool.IDevice[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  return words.length === 0
    ? devices
    : devices.filter(device => {
        const about = aboutOf(device);
        return words.every(word =>
          word === 'free'
            ? device.healthy && device.free_milli > 0
            : about.includes(word)
        );
      });
}

function aboutOf(device: GpuPool.IDevice): string {
  const holders = device.shares.flatMap(share => [
    share.user,
    share.label,
    share.mine ? 'you' : ''
  ]);
  return [device.id, device.node, device.name, ...holders]
    .join('\n')
    .toLowerCase();
}

/** How much of all devices of some nodes is free, and of how many. */
export function sumOf(groups: readonly INodeGroup[]): {
  free: number;
  lending: number;
} {
  return {
    free: groups.reduce((sum, group) => sum + group.free, 0),
    lending: groups.reduce((sum, group) => sum + group.lending, 0)
  };
}
