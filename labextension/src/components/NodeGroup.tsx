import { caretDownIcon, caretRightIcon } from '@jupyterlab/ui-components';
import { useId } from 'react';
import type { GpuPool } from '../api/types';
import { layoutNode, type INodeGroup } from '../figures/layout';
import { formatMilli } from '../figures/share';
import { h } from '../ui/jsx';
import { Device } from './Device';
import { ShareBar } from './ShareBar';
import { useFold, type IContext } from './context';

interface IProps {
  group: INodeGroup;
  queue: readonly GpuPool.IQueueEntry[];
  opens: boolean;
  devicesFold: boolean;
  context: IContext;
}

/** The devices of one node under its name; folded, one bar for all. */
export function NodeGroup(props: IProps): JSX.Element {
  const { group, queue, opens, devicesFold, context } = props;
  const { trans } = context;
  const [open, toggle] = useFold(context, `node:${group.node}`, opens);
  const body = useId();
  const Caret = open ? caretDownIcon.react : caretRightIcon.react;
  const whole = group.devices.length;
  const silent = whole - group.lending;
  const lent = group.devices.reduce(
    (sum, device) => sum + 1000 - device.free_milli,
    0
  );
  return (
    <div
      className="jp-GpuPool-node"
      role="group"
      aria-label={trans.__('Node %1', group.node)}
    >
      <h3 className="jp-GpuPool-nodeHeading">
        <button
          type="button"
          className="jp-GpuPool-link jp-GpuPool-fold jp-GpuPool-nodeToggle"
          aria-expanded={open}
          aria-controls={body}
          onClick={toggle}
        >
          <Caret tag="span" className="jp-GpuPool-caret" />
          <span className="jp-GpuPool-name" title={group.node}>
            {group.node}
          </span>
          <span className="jp-GpuPool-value">
            {trans.__('%1 of %2 free', formatMilli(group.free), group.lending)}
          </span>
        </button>
      </h3>
      {silent > 0 ? (
        <div className="jp-GpuPool-detail jp-GpuPool-inset">
          {trans._n(
            '%1 device does not lend.',
            '%1 devices do not lend.',
            silent
          )}
        </div>
      ) : null}
      {open ? null : (
        <div className="jp-GpuPool-inset">
          <ShareBar
            segments={layoutNode(group)}
            label={trans.__('Compute lent on node %1', group.node)}
            lent={Number((lent / 1000).toFixed(3))}
            whole={whole}
            trans={trans}
          />
        </div>
      )}
      <div id={body} hidden={!open}>
        {open ? (
          <ul
            className="jp-GpuPool-list"
            aria-label={trans.__('Devices of %1', group.node)}
          >
            {group.devices.map(device => (
              <Device
                key={device.id}
                device={device}
                queue={queue}
                folds={devicesFold}
                context={context}
              />
            ))}
          </ul>
        ) : null}
      </div>
    </div>
  );
}
