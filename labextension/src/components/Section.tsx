import { caretDownIcon, caretRightIcon } from '@jupyterlab/ui-components';
import React, { useId, useState } from 'react';

interface IProps {
  title: string;
  /** Short text at the right of the title. */
  summary?: string;
  children: React.ReactNode;
}

/** A part of the sidebar that can be folded away. */
export function Section(props: IProps): JSX.Element {
  const [open, setOpen] = useState(true);
  const body = useId();
  const heading = useId();
  const Caret = open ? caretDownIcon.react : caretRightIcon.react;
  return (
    <section className="jp-GpuPool-section" aria-labelledby={heading}>
      <h2 className="jp-GpuPool-sectionHeading">
        <button
          type="button"
          className="jp-GpuPool-sectionToggle"
          aria-expanded={open}
          aria-controls={body}
          onClick={() => setOpen(!open)}
        >
          <Caret tag="span" className="jp-GpuPool-caret" />
          <span id={heading} className="jp-GpuPool-sectionTitle">
            {props.title}
          </span>
          {props.summary ? (
            <span className="jp-GpuPool-sectionSummary">{props.summary}</span>
          ) : null}
        </button>
      </h2>
      <div id={body} hidden={!open} className="jp-GpuPool-sectionBody">
        {props.children}
      </div>
    </section>
  );
}
