import type React from 'react';
import { h } from '../ui/jsx';

/** A line that shows the rest of a list, or hides it again. */
export function More(props: {
  onClick: () => void;
  children: React.ReactNode;
}): JSX.Element {
  return (
    <button
      type="button"
      className="jp-GpuPool-link jp-GpuPool-moreOfList"
      onClick={props.onClick}
    >
      {props.children}
    </button>
  );
}
