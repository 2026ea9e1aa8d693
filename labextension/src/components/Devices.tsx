import { useState } from 'react';
import type { GpuPool } from '../api/types';
import {
  devicesFold,
  groupByNode,
  nodeOpens,
  showsNodes
} from '../figures/layout';
import {
  filtered as matching,
  firstNodes,
  MANY_DEVICES,
  sumOf
} from '../figures/parts';
import { formatRoom } from '../figures/share';
import { Fragment, h } from '../ui/jsx';
import { Device } from './Device';
import { More } from './More';
import { NodeGroup } from './NodeGroup';
import { useFold, type IContext } from './context';

/** The devices of a pool, by node where there are several; a filter where there are many. */
export function Devices(props: {
  pool: GpuPool.IPool;
  context: IContext;
}): JSX.Element {
  const { pool, context } = props;
  const { trans } = context;
  const [text, setText] = useState('');
  const large = pool.devices.length > MANY_DEVICES;
  const found = large ? matching(pool.devices, text) : pool.devices;
  const filtered = found.length < pool.devices.length;
  const groups = groupByNode(pool.devices);
  const folds = devicesFold(groups);
  if (!showsNodes(groups)) {
    return (
      <ul className="jp-GpuPool-list" aria-label={trans.__('Devices')}>
        {pool.devices.map(device => (
          <Device
            key={device.id}
            device={device}
            queue={pool.queue}
            folds={folds}
            inNode={false}
            context={context}
          />
        ))}
      </ul>
    );
  }
  return (
    <>
      {large ? (
        <input
          type="search"
          className="jp-mod-styled jp-GpuPool-filter"
          aria-label={trans.__('Filter the GPUs')}
          placeholder={trans.__('Filter: node, user, notebook, free')}
          autoComplete="off"
          spellCheck={false}
          value={text}
          onChange={event => setText(event.target.value)}
        />
      ) : null}
      {found.length === 0 ? (
        <p className="jp-GpuPool-empty" role="status">
          {trans.__('No GPU of the pool is like that.')}
        </p>
      ) : (
        <Nodes
          pool={pool}
          devices={found}
          large={large}
          filtered={filtered}
          context={context}
        />
      )}
    </>
  );
}

function Nodes(props: {
  pool: GpuPool.IPool;
  devices: readonly GpuPool.IDevice[];
  large: boolean;
  filtered: boolean;
  context: IContext;
}): JSX.Element {
  const { pool, devices, large, filtered, context } = props;
  const { trans } = context;
  const [all, showAll] = useFold(context, 'nodes', false);
  const groups = groupByNode(devices);
  const folds = devicesFold(groupByNode(pool.devices));
  const { shown, more } = firstNodes(groups, filtered);
  const rest = sumOf(more);
  return (
    <>
      {(all ? [...shown, ...more] : shown).map(group => (
        <NodeGroup
          key={group.node}
          group={group}
          queue={pool.queue}
          opens={nodeOpens(group, groups)}
          devicesFold={folds}
          large={large}
          filtered={filtered}
          context={context}
        />
      ))}
      {more.length > 0 ? (
        <More onClick={showAll}>
          {all
            ? trans.__('Fewer nodes')
            : trans._n(
                '%1 more node, %2 of %3 free',
                '%1 more nodes, %2 of %3 free',
                more.length,
                formatRoom(rest.free),
                rest.lending
              )}
        </More>
      ) : null}
    </>
  );
}
