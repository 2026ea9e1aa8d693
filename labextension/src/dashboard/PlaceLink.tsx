import React from 'react';
import { h } from '../ui/jsx';
import type { IDashboardContext } from './context';
import { DashboardCommandIDs } from './ids';
import type { IPlace } from './place';

/** A link that opens here, and in a new tab of the browser when asked to. */
export function PlaceLink(props: {
  place: IPlace;
  context: IDashboardContext;
  current?: boolean;
  children: React.ReactNode;
}): JSX.Element {
  const { place, context, current } = props;
  return (
    <a
      href={context.link(place)}
      aria-current={current ? 'page' : undefined}
      onClick={event => {
        if (event.ctrlKey || event.metaKey || event.shiftKey) {
          return;
        }
        event.preventDefault();
        // JupyterLab opens links of its own server in a new tab of the browser.
        event.stopPropagation();
        void context.commands.execute(DashboardCommandIDs.open, { ...place });
      }}
    >
      {props.children}
    </a>
  );
}
