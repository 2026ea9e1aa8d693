import type React from 'react';
import type { GpuPool } from '../api/types';
import { formatRoom } from '../figures/share';
import { deviceOfNode } from '../text/devices';
import { h } from '../ui/jsx';
import type { IContext } from './context';

/** More cells than this stand below the name of their node, in several lines. */
const ONE_LINE = 16;

/**
 * A cell for each device of a node, filled as far as it is in use, one's own
 * part from below. To a screen reader it is one meter.
 */
export function NodeStrip(props: {
  node: string;
  devices: readonly GpuPool.IDevice[];
  context: IContext;
}): JSX.Element {
  const { node, devices, context } = props;
  const { trans } = context;
  const held = devices.reduce(
    (sum, device) => sum + 1000 - device.free_milli,
    0
  );
  const gpus = Math.round(held / 10) / 100;
  return (
    <span
      className="jp-GpuPool-strip"
      data-long={isLong(devices)}
      role="meter"
      aria-label={trans.__('Compute in use on node %1', node)}
      aria-valuemin={0}
      aria-valuemax={devices.length}
      aria-valuenow={gpus}
      aria-valuetext={trans.__('%1 of %2 GPUs', gpus, devices.length)}
    >
      {devices.map(device => (
        <span
          key={device.id}
          className="jp-GpuPool-cell"
          data-healthy={device.healthy}
          style={cellStyle(device)}
          title={
            device.healthy
              ? trans.__(
                  '%1: %2 free',
                  deviceOfNode(device, trans),
                  formatRoom(device.free_milli)
                )
              : trans.__('%1: not available', deviceOfNode(device, trans))
          }
        />
      ))}
    </span>
  );
}

export function isLong(devices: readonly unknown[]): boolean {
  return devices.length > ONE_LINE;
}

function cellStyle(device: GpuPool.IDevice): React.CSSProperties {
  const mine = device.shares
    .filter(share => share.mine)
    .reduce((sum, share) => sum + Math.max(0, share.milli), 0);
  const held = Math.max(mine, 1000 - device.free_milli);
  const percent = (milli: number) => `${Math.min(100, milli / 10)}%`;
  return {
    '--jp-private-gpupool-cell-mine': percent(mine),
    '--jp-private-gpupool-cell-held': percent(held)
  } as React.CSSProperties;
}
