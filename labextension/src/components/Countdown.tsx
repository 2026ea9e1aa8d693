import { UseSignal } from '@jupyterlab/ui-components';
import React from 'react';
import { formatCountdown } from '../format';
import type { IGpuPool } from '../tokens';

/**
 * Time until a kernel is released. A timer is not read out at each second by
 * a screen reader; the row's status says once that the countdown began.
 */
export function Countdown(props: {
  model: IGpuPool;
  kernelId: string;
  label: string;
}): JSX.Element {
  const { model, kernelId, label } = props;
  return (
    <UseSignal signal={model.ticked}>
      {() => {
        const left = model.countdown(kernelId);
        return (
          <span
            className="jp-GpuPool-countdown"
            role="timer"
            aria-label={label}
          >
            {left === null ? '' : formatCountdown(left)}
          </span>
        );
      }}
    </UseSignal>
  );
}
