import React, { useEffect, useRef } from 'react';

import { h } from '../ui/jsx';
/**
 * Keeps keyboard focus inside when what had it goes away: a button that was
 * pressed, the row of a kernel that ended. Focus then moves to the home of
 * the innermost group around it that is still there (`data-focus-group`,
 * `data-focus-home`), and nowhere else.
 */
export function FocusKeeper(props: { children: React.ReactNode }): JSX.Element {
  const focused = useRef<Element | null>(null);
  const groups = useRef<Element[]>([]);

  useEffect(() => {
    if (focused.current === null || focused.current.isConnected) {
      return;
    }
    focused.current = null;
    // Whoever took the focus meanwhile keeps it.
    if (document.activeElement !== document.body) {
      return;
    }
    const group = groups.current.find(node => node.isConnected);
    group?.querySelector<HTMLElement>('[data-focus-home]')?.focus();
  });

  return (
    <div
      className="jp-GpuPool-content"
      data-focus-group=""
      onFocus={event => {
        focused.current = event.target;
        groups.current = groupsAround(event.target);
      }}
      onBlur={event => {
        // An element that is removed loses its focus without this event.
        if (event.target.isConnected) {
          focused.current = null;
        }
      }}
    >
      {props.children}
    </div>
  );
}

/** Innermost first. */
function groupsAround(node: Element): Element[] {
  const groups: Element[] = [];
  let group = node.closest('[data-focus-group]');
  while (group !== null) {
    groups.push(group);
    group = group.parentElement?.closest('[data-focus-group]') ?? null;
  }
  return groups;
}
