import type { TranslationBundle } from '@jupyterlab/translation';
import type { GpuPool } from '../api/types';
import type { ISegment } from '../figures/layout';
import { formatShare } from '../figures/share';
import { formatMib } from '../text/format';
import { ownerText, useText } from '../text/words';
import { h } from '../ui/jsx';

/**
 * A bar cut into shares: own ones solid, others' hatched, idle ones paler.
 * What it shows stands beside it as text too; to a screen reader it is one
 * meter.
 */
export function ShareBar(props: {
  segments: readonly ISegment[];
  label: string;
  /** How much is reserved, and of how much, in GPUs. */
  held: number;
  whole: number;
  trans: TranslationBundle;
}): JSX.Element {
  const { segments, label, held, whole, trans } = props;
  return (
    <div
      className="jp-GpuPool-bar"
      role="meter"
      aria-label={label}
      aria-valuemin={0}
      aria-valuemax={whole}
      aria-valuenow={held}
      aria-valuetext={
        whole === 1
          ? trans.__('%1 of 1 GPU', held)
          : trans.__('%1 of %2 GPUs', held, whole)
      }
    >
      {segments.map(segment => (
        <div
          key={segment.key}
          className="jp-GpuPool-segment"
          data-kind={segment.kind}
          data-idle={segment.idle}
          style={{ left: `${segment.start}%`, width: `${segment.width}%` }}
          title={titleOf(segment, trans)}
        >
          {/* Narrower pieces have no room for a number; the list has it. */}
          {segment.share && segment.width >= 14 ? (
            <span>{formatShare(segment.share.milli)}</span>
          ) : null}
        </div>
      ))}
    </div>
  );
}

function titleOf(segment: ISegment, trans: TranslationBundle): string {
  if (segment.share) {
    return describeShare(segment.share, trans);
  }
  switch (segment.kind) {
    case 'mine':
      return trans.__('yours');
    case 'other':
      return trans.__('others’');
    case 'free':
      return trans.__('free');
    case 'unusable':
      return trans.__('not available');
  }
}

export function describeShare(
  share: GpuPool.IDeviceShare,
  trans: TranslationBundle
): string {
  return trans.__(
    '%1: %2 GPU and %3, %4',
    ownerText(share, trans),
    formatShare(share.milli),
    formatMib(share.mib),
    useText(share, trans)
  );
}
