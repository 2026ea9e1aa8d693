import type { ReactNode } from 'react';
import { h } from '../ui/jsx';

/** A cell of a table whose numbers stand below each other. */
export function NumberCell({
  children
}: {
  children?: ReactNode;
}): JSX.Element {
  return <td className="jp-GpuPool-number">{children}</td>;
}
