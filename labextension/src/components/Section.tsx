import { caretDownIcon, caretRightIcon } from '@jupyterlab/ui-components';
import React, { useId } from 'react';
import { h } from '../ui/jsx';
import { useFold, type IContext } from './context';

interface IProps {
  /** Under which it is remembered whether it is folded. */
  id: string;
  title: string;
  /** Short text at the right of the title. */
  summary?: string;
  context: IContext;
  children: React.ReactNode;
}

/** A part of the sidebar that can be folded away. */
export function Section(props: IProps): JSX.Element {
  const [open, toggle] = useFold(props.context, `section:${props.id}`);
  const body = useId();
  const heading = useId();
  const Caret = open ? caretDownIcon.react : caretRightIcon.react;
  return (
    <section
      className="jp-GpuPool-section"
      aria-labelledby={heading}
      data-focus-group=""
    >
      <h2 className="jp-GpuPool-sectionHeading">
        <button
          type="button"
          className="jp-GpuPool-sectionToggle"
          aria-expanded={open}
          aria-controls={body}
          data-focus-home=""
          onClick={toggle}
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
        {open ? props.children : null}
      </div>
    </section>
  );
}
