import { caretDownIcon, caretRightIcon } from '@jupyterlab/ui-components';
import { useId } from 'react';
import type { GpuPool } from '../api/types';
import { holdsMine, layoutDevice, type ISegment } from '../figures/layout';
import { queuedFor, wantedMilli } from '../figures/room';
import { formatRoom, formatShare } from '../figures/share';
import { deviceName, deviceOfNode } from '../text/devices';
import { formatBytes, formatMib } from '../text/format';
import { ownerText, useText, waitsText } from '../text/words';
import { Fragment, h } from '../ui/jsx';
import { describeShare, ShareBar } from './ShareBar';
import { useFold, type IContext } from './context';

interface IProps {
  device: GpuPool.IDevice;
  queue: readonly GpuPool.IQueueEntry[];
  /** One line each until unfolded, where there are many. */
  folds: boolean;
  /** The node is said above it. */
  inNode: boolean;
  context: IContext;
}

/** One device: a bar cut into shares, and the same in words below it. */
export function Device(props: IProps): JSX.Element {
  const { device, queue, folds, inNode, context } = props;
  const { trans } = context;
  const full = deviceName(device.id, trans);
  const name = inNode ? deviceOfNode(device, trans) : full;
  const [unfolded, toggle] = useFold(
    context,
    `device:${device.id}`,
    holdsMine(device)
  );
  const open = !folds || unfolded;
  const details = useId();
  const Caret = open ? caretDownIcon.react : caretRightIcon.react;
  const segments = layoutDevice(device);
  const waiting = queuedFor(device, queue);
  const held = 1 - device.free_milli / 1000;
  return (
    <li
      className="jp-GpuPool-device"
      aria-label={full}
      data-open={open}
      data-healthy={device.healthy}
    >
      <div className="jp-GpuPool-line">
        {folds ? (
          <button
            type="button"
            className="jp-GpuPool-link jp-GpuPool-fold jp-GpuPool-name"
            title={`${device.name}\n${device.id}`}
            aria-expanded={open}
            aria-controls={details}
            onClick={toggle}
          >
            <Caret tag="span" className="jp-GpuPool-caret" />
            <span className="jp-GpuPool-ellipsis">{name}</span>
          </button>
        ) : (
          <span
            className="jp-GpuPool-name"
            title={`${device.name}\n${device.id}`}
          >
            {name}
          </span>
        )}
        {open && device.software ? (
          <span
            className="jp-GpuPool-tag"
            title={trans.__('Software GPU: runs GPU programs on the processor')}
          >
            {trans.__('software')}
          </span>
        ) : null}
        {device.healthy ? null : (
          <span
            className="jp-GpuPool-tag"
            data-kind={device.drained ? 'warning' : 'error'}
          >
            {device.drained ? trans.__('drained') : trans.__('not answering')}
          </span>
        )}
        <span className="jp-GpuPool-value">
          {device.healthy
            ? trans.__('%1 free', formatRoom(device.free_milli))
            : trans.__('not available')}
        </span>
      </div>
      <ShareBar
        segments={segments}
        label={trans.__('Compute in use on %1', full)}
        held={Number(held.toFixed(2))}
        whole={1}
        trans={trans}
      />
      {waiting.length > 0 ? (
        <Waiting device={device} waiting={waiting} context={context} />
      ) : null}
      <div id={details} hidden={!open}>
        {open ? (
          <Details device={device} segments={segments} context={context} />
        ) : null}
      </div>
    </li>
  );
}

/** What is queued for a device: a dashed bar, and who waits in words. */
function Waiting(props: {
  device: GpuPool.IDevice;
  waiting: readonly GpuPool.IQueueEntry[];
  context: IContext;
}): JSX.Element {
  const { device, waiting, context } = props;
  const { trans } = context;
  const milli = waiting.reduce(
    (sum, entry) => sum + wantedMilli(entry, device),
    0
  );
  const text = waitsText(waiting, milli, trans);
  return (
    <>
      <div
        className="jp-GpuPool-queued"
        aria-hidden="true"
        style={{ width: `${Math.min(100, milli / 10)}%` }}
      />
      <div className="jp-GpuPool-detail" title={text}>
        {text}
      </div>
    </>
  );
}

/** Memory, why it does not lend, and each share as a line. */
function Details(props: {
  device: GpuPool.IDevice;
  segments: readonly ISegment[];
  context: IContext;
}): JSX.Element {
  const { device, segments, context } = props;
  const { trans } = context;
  const heldMib = Math.max(0, device.usable_mib - device.free_mib);
  return (
    <>
      {device.healthy || !device.health_reason ? null : (
        <div className="jp-GpuPool-detail">{device.health_reason}</div>
      )}
      <div
        className="jp-GpuPool-detail"
        title={trans.__(
          'Memory reserved by shares, of what can be shared, and what programs use of it'
        )}
      >
        {trans.__(
          '%1 of %2 reserved, %3 used',
          formatMib(heldMib),
          formatMib(device.usable_mib),
          formatBytes(device.used_bytes)
        )}
      </div>
      <Legend segments={segments} device={device} context={context} />
    </>
  );
}

function Legend(props: {
  segments: readonly ISegment[];
  device: GpuPool.IDevice;
  context: IContext;
}): JSX.Element | null {
  const { segments, device, context } = props;
  const { trans } = context;
  const held = segments.filter(segment => segment.share !== null);
  if (held.length === 0) {
    return null;
  }
  return (
    <ul
      className="jp-GpuPool-legend"
      aria-label={trans.__('Shares of %1', deviceName(device.id, trans))}
    >
      {held.map(({ key, kind, idle, share }) => (
        <li key={key} className="jp-GpuPool-line">
          <span
            className="jp-GpuPool-swatch"
            data-kind={kind}
            data-idle={idle}
            aria-hidden="true"
          />
          <span
            className="jp-GpuPool-owner"
            title={describeShare(share!, trans)}
          >
            {ownerText(share!, trans)}
          </span>
          <span className="jp-GpuPool-value">
            {`${formatShare(share!.milli)} · `}
            {useText(share!, trans)}
          </span>
        </li>
      ))}
    </ul>
  );
}
