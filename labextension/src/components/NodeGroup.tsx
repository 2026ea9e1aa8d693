import { caretDownIcon, caretRightIcon } from '@jupyterlab/ui-components';
import { useId } from 'react';
import type { GpuPool } from '../api/types';
import type { INodeGroup } from '../figures/layout';
import { firstDevices } from '../figures/parts';
import { formatRoom } from '../figures/share';
import { h } from '../ui/jsx';
import { Device } from './Device';
import { More } from './More';
import { isLong, NodeStrip } from './NodeStrip';
import { useFold, type IContext } from './context';

interface IProps {
  group: INodeGroup;
  queue: readonly GpuPool.IQueueEntry[];
  opens: boolean;
  devicesFold: boolean;
  /** Of a large pool only a part is shown at first. */
  large: boolean;
  /** Its devices are what a filter has found. */
  filtered: boolean;
  context: IContext;
}

/** The devices of one node under its name, and all of them as a strip. */
export function NodeGroup(props: IProps): JSX.Element {
  const { group, queue, opens, devicesFold, large, filtered, context } = props;
  const { trans } = context;
  const [unfolded, toggle] = useFold(context, `node:${group.node}`, opens);
  const open = unfolded || filtered;
  const [all, showAll] = useFold(context, `devices:${group.node}`, false);
  const body = useId();
  const Caret = open ? caretDownIcon.react : caretRightIcon.react;
  const silent = group.devices.length - group.lending;
  const { shown, more } = all
    ? { shown: group.devices, more: [] }
    : firstDevices(group.devices, large, filtered);
  const strip = (
    <NodeStrip node={group.node} devices={group.devices} context={context} />
  );
  const long = isLong(group.devices);
  return (
    <div
      className="jp-GpuPool-node"
      role="group"
      aria-label={trans.__('Node %1', group.node)}
    >
      <div className="jp-GpuPool-nodeLine">
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
          </button>
        </h3>
        {long ? null : strip}
        <span className="jp-GpuPool-value">
          {trans.__('%1 of %2 free', formatRoom(group.free), group.lending)}
        </span>
      </div>
      {long ? strip : null}
      {silent > 0 ? (
        <div className="jp-GpuPool-detail jp-GpuPool-inset">
          {trans._n(
            '%1 GPU is not available.',
            '%1 GPUs are not available.',
            silent
          )}
        </div>
      ) : null}
      <div id={body} hidden={!open}>
        {open ? (
          <ul
            className="jp-GpuPool-list"
            aria-label={trans.__('Devices of %1', group.node)}
          >
            {shown.map(device => (
              <Device
                key={device.id}
                device={device}
                queue={queue}
                folds={devicesFold}
                inNode={true}
                context={context}
              />
            ))}
          </ul>
        ) : null}
        {/* One button of both, so that it keeps the focus of whoever presses it. */}
        {open && (more.length > 0 || (all && large && !filtered)) ? (
          <More onClick={showAll}>
            {more.length > 0
              ? trans._n(
                  '%1 more GPU of %2',
                  '%1 more GPUs of %2',
                  more.length,
                  group.node
                )
              : trans.__('Fewer GPUs of %1', group.node)}
          </More>
        ) : null}
      </div>
    </div>
  );
}
