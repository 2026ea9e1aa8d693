import React, { useEffect, useRef } from 'react';
import type { GpuPool } from '../api/types';
import { formatMilli, formatRoom, roomOf } from '../figures/share';
import { h } from '../ui/jsx';
import type { IContext } from './context';

/** Steps of the arrow keys, and the smallest share, milli-GPU. */
const STEP = 10;
/** Keys may be pressed again and again; after this pause it is meant, ms. */
const KEYS_PAUSE_MS = 700;

interface IProps {
  kernel: GpuPool.IKernel;
  /** What the thumb shows, milli-GPU. */
  value: number;
  /** What can be had now; null: not known. */
  limit: number | null;
  pending: boolean;
  /** While it is moved; null when that is called off. */
  onSlide: (milli: number | null) => void;
  /** When it is let go. */
  onCommit: (milli: number) => void;
  context: IContext;
}

/**
 * Resizes a share: the scale is one whole device, the thumb stops at what is
 * free. Nothing is asked for before the pointer is let go or keys rest.
 */
export function ShareSlider(props: IProps): JSX.Element {
  const { kernel, value, limit, pending, onSlide, context } = props;
  const { trans } = context;
  const input = useRef<HTMLInputElement>(null);
  const byKeys = useRef(false);
  const timer = useRef<ReturnType<typeof setTimeout>>();
  // What is asked for when it is let go; null: it was not moved.
  const slid = useRef<number | null>(null);
  const most = limit ?? 1000;

  const stop = () => clearTimeout(timer.current);
  const commit = () => {
    stop();
    if (slid.current !== null) {
      props.onCommit(slid.current);
      slid.current = null;
    }
  };
  const latest = useRef(commit);
  latest.current = commit;
  useEffect(() => stop, []);

  // React's onChange is the event `input`; the end of a drag is `change`,
  // which browsers send wherever the pointer is then.
  useEffect(() => {
    const node = input.current;
    const released = () => {
      if (!byKeys.current) {
        latest.current();
      }
    };
    node?.addEventListener('change', released);
    return () => node?.removeEventListener('change', released);
  }, []);

  return (
    <input
      ref={input}
      type="range"
      className="jp-GpuPool-slider"
      title={hintText(kernel, limit, context)}
      min={STEP}
      max={1000}
      step={STEP}
      value={value}
      style={sliderStyle(value, most)}
      aria-label={trans.__('Resize the share of %1', kernel.label)}
      aria-valuetext={
        limit === null || roomOf(limit) <= value
          ? trans.__('%1 of a GPU', formatMilli(value))
          : trans.__(
              '%1 of a GPU; can grow to %2',
              formatMilli(value),
              formatRoom(limit)
            )
      }
      aria-disabled={pending}
      onPointerDown={() => {
        byKeys.current = false;
      }}
      onKeyDown={event => {
        byKeys.current = true;
        if (event.key === 'Escape' && slid.current !== null) {
          event.stopPropagation();
          stop();
          slid.current = null;
          onSlide(null);
        } else if (event.key === 'Enter') {
          event.preventDefault();
          commit();
        }
      }}
      onBlur={commit}
      onChange={event => {
        if (pending) {
          return;
        }
        // What is held may be no whole step, and stays possible.
        slid.current = Math.max(
          STEP,
          Math.min(Number(event.target.value), most)
        );
        onSlide(slid.current);
        if (byKeys.current) {
          stop();
          timer.current = setTimeout(() => latest.current(), KEYS_PAUSE_MS);
        }
      }}
    />
  );
}

/** How far a share can grow, by the figures that are shown. */
export function hintText(
  kernel: GpuPool.IKernel,
  limit: number | null,
  { trans }: IContext
): string {
  const held = kernel.share?.milli ?? 0;
  if (limit === null) {
    return trans.__('What is free is not known.');
  }
  return roomOf(limit) > held
    ? trans.__('Can grow to %1.', formatRoom(limit))
    : trans.__('Cannot grow now.');
}

/** Where the parts of the track end; their colours are the style sheet's. */
function sliderStyle(value: number, most: number): React.CSSProperties {
  const at = (milli: number) =>
    `${Math.min(100, Math.max(0, ((milli - STEP) / (1000 - STEP)) * 100))}%`;
  return {
    '--jp-private-gpupool-slid': at(value),
    '--jp-private-gpupool-limit': at(most)
  } as React.CSSProperties;
}
