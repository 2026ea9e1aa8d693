import { useEffect, useRef, useState } from 'react';
import type { IGpuPool } from '../model/tokens';
import { formatCountdown } from '../text/format';
import { h } from '../ui/jsx';

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
  const node = useRef<HTMLSpanElement>(null);
  const [, setTick] = useState(0);
  useEffect(() => {
    const slot = () => {
      // In a sidebar that is hidden there is nothing to draw.
      if (node.current?.offsetParent !== null) {
        setTick(tick => tick + 1);
      }
    };
    model.ticked.connect(slot);
    return () => {
      model.ticked.disconnect(slot);
    };
  }, [model]);
  const left = model.countdown(kernelId);
  return (
    <span
      ref={node}
      className="jp-GpuPool-countdown"
      role="timer"
      aria-label={label}
    >
      {left === null ? '' : formatCountdown(left)}
    </span>
  );
}
