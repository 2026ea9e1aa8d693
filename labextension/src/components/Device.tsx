import type { TranslationBundle } from '@jupyterlab/translation';
import React from 'react';
import { formatBytes, formatMib } from '../format';
import { layoutDevice, type ISegment } from '../layout';
import { formatMilli } from '../share';
import type { GpuPool } from '../tokens';
import { ownerText } from '../words';

interface IProps {
  device: GpuPool.IDevice;
  trans: TranslationBundle;
}

/** One device: a bar cut into shares, and the same in words below it. */
export function Device({ device, trans }: IProps): JSX.Element {
  const segments = layoutDevice(device);
  const lent = 1000 - device.free_milli;
  const lentMib = Math.max(0, device.usable_mib - device.free_mib);
  return (
    <li className="jp-GpuPool-device" aria-label={device.id}>
      <div className="jp-GpuPool-line">
        <span className="jp-GpuPool-name" title={device.name}>
          {device.id}
        </span>
        {device.software ? (
          <span
            className="jp-GpuPool-tag"
            title={trans.__('Runs GPU programs on the processor')}
          >
            {trans.__('software GPU')}
          </span>
        ) : null}
        {device.healthy ? null : (
          <span
            className="jp-GpuPool-tag"
            data-kind="error"
            title={device.health_reason ?? undefined}
          >
            {trans.__('not answering')}
          </span>
        )}
        <span className="jp-GpuPool-value">
          {trans.__('%1 free', formatMilli(device.free_milli))}
        </span>
      </div>
      <div
        className="jp-GpuPool-bar"
        role="meter"
        aria-label={trans.__('Compute lent on %1', device.id)}
        aria-valuemin={0}
        aria-valuemax={1}
        aria-valuenow={lent / 1000}
        aria-valuetext={trans.__('%1 of 1 GPU', formatMilli(lent))}
      >
        {segments.map(segment => (
          <Segment key={segment.key} segment={segment} trans={trans} />
        ))}
      </div>
      <div
        className="jp-GpuPool-detail"
        title={trans.__(
          'Memory reserved by shares, of what can be shared, and what programs use of it'
        )}
      >
        {trans.__(
          '%1 / %2 lent · %3 used',
          formatMib(lentMib),
          formatMib(device.usable_mib),
          formatBytes(device.used_bytes)
        )}
      </div>
      <Legend segments={segments} trans={trans} device={device} />
    </li>
  );
}

function Segment(props: {
  segment: ISegment;
  trans: TranslationBundle;
}): JSX.Element {
  const { segment, trans } = props;
  const { share } = segment;
  return (
    <div
      className="jp-GpuPool-segment"
      data-kind={segment.kind}
      data-idle={segment.idle}
      style={{ left: `${segment.start}%`, width: `${segment.width}%` }}
      title={share ? describe(share, trans) : trans.__('free')}
    >
      {/* Narrower pieces have no room for a number; the list has it. */}
      {share && segment.width >= 12 ? (
        <span>{formatMilli(share.milli)}</span>
      ) : null}
    </div>
  );
}

function Legend(props: {
  segments: ISegment[];
  trans: TranslationBundle;
  device: GpuPool.IDevice;
}): JSX.Element | null {
  const { segments, trans, device } = props;
  const lent = segments.filter(segment => segment.share !== null);
  if (lent.length === 0) {
    return null;
  }
  return (
    <ul
      className="jp-GpuPool-legend"
      aria-label={trans.__('Shares of %1', device.id)}
    >
      {lent.map(({ key, kind, idle, share }) => (
        <li key={key} className="jp-GpuPool-line">
          <span
            className="jp-GpuPool-swatch"
            data-kind={kind}
            data-idle={idle}
            aria-hidden="true"
          />
          <span className="jp-GpuPool-owner" title={describe(share!, trans)}>
            {ownerText(share!, trans)}
          </span>
          <span className="jp-GpuPool-value">
            {`${formatMilli(share!.milli)} · `}
            {share!.in_use ? trans.__('in use') : trans.__('idle')}
          </span>
        </li>
      ))}
    </ul>
  );
}

function describe(
  share: GpuPool.IDeviceShare,
  trans: TranslationBundle
): string {
  return trans.__(
    '%1: %2 GPU and %3, %4',
    ownerText(share, trans),
    formatMilli(share.milli),
    formatMib(share.mib),
    share.in_use ? trans.__('in use') : trans.__('idle')
  );
}
