import React, { useEffect } from 'react';
import { projectText } from '../text/choices';
import { h } from '../ui/jsx';
import type { IContext } from './context';

/**
 * The project that a request counts against: a list with what each deserves
 * and holds, or a text where the server does not know the projects.
 */
export function ProjectChoice(props: {
  label: string;
  value: string;
  /** What counts where none is said: the notebook's, before every default. */
  noted?: string;
  onChange: (path: string) => void;
  context: Pick<IContext, 'model' | 'trans'>;
}): JSX.Element {
  const { label, value, noted, onChange, context } = props;
  const { model, trans } = context;
  const projects = model.defaults?.projects ?? [];

  // Figures of projects are of the moment.
  useEffect(() => void model.refreshDefaults(), [model]);

  const usual = model.preferences.defaultProject || model.defaults?.project;
  const asUsual = noted
    ? trans.__('as the notebook notes (%1)', noted)
    : usual
      ? trans.__('your default (%1)', usual)
      : trans.__('your default');
  const common = {
    'aria-label': label,
    value,
    onChange: (
      event: React.ChangeEvent<HTMLInputElement | HTMLSelectElement>
    ) => onChange(event.target.value)
  };
  return projects.length === 0 ? (
    <input
      {...common}
      type="text"
      className="jp-mod-styled jp-GpuPool-input"
      autoComplete="off"
      spellCheck={false}
      placeholder={asUsual}
    />
  ) : (
    <select {...common} className="jp-mod-styled">
      <option value="">{asUsual}</option>
      {projects.map(project => (
        <option key={project.path} value={project.path}>
          {projectText(project, trans)}
        </option>
      ))}
    </select>
  );
}
