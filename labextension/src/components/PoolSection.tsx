import React from 'react';
import { formatMilli } from '../share';
import type { GpuPool } from '../tokens';
import type { IContext } from './context';
import { Device } from './Device';
import { Section } from './Section';

/** The devices of the pool and how they are shared out. */
export function PoolSection(props: {
  state: GpuPool.IState;
  context: IContext;
}): JSX.Element {
  const { trans } = props.context;
  const pool = props.state.pool;
  const devices = pool?.devices ?? [];
  return (
    <Section title={trans.__('Pool')} summary={summary(props)}>
      {devices.length > 0 ? (
        <ul className="jp-GpuPool-list" aria-label={trans.__('Devices')}>
          {devices.map(device => (
            <Device key={device.id} device={device} trans={trans} />
          ))}
        </ul>
      ) : (
        <p className="jp-GpuPool-empty">
          {pool?.ok
            ? trans.__('The pool has no device. Start a node: gpupool node')
            : trans.__('The devices are shown when the pool answers.')}
        </p>
      )}
    </Section>
  );
}

function summary(props: {
  state: GpuPool.IState;
  context: IContext;
}): string | undefined {
  const pool = props.state.pool;
  if (!pool?.ok || pool.devices.length === 0) {
    return undefined;
  }
  const total = pool.devices.length;
  const free =
    pool.totals?.free_milli ??
    pool.devices.reduce((sum, device) => sum + device.free_milli, 0);
  return props.context.trans.__('%1 of %2 free', formatMilli(free), total);
}
