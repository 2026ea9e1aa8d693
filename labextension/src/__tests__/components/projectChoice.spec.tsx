import { cleanup, fireEvent, render, screen } from '@testing-library/react';
import { nullTranslator } from '@jupyterlab/translation';
import type { GpuPool } from '../../api/types';
import { ProjectChoice } from '../../components/ProjectChoice';
import { readPreferences } from '../../model/preferences';
import type { IGpuPool } from '../../model/tokens';
import { h } from '../../ui/jsx';
import { someDefaults } from '../samples';

afterEach(cleanup);

function show(
  defaults: GpuPool.IDefaults | null,
  settings: { defaultProject?: string } = {}
): string[] {
  const chosen: string[] = [];
  const model = {
    defaults,
    preferences: readPreferences(settings, defaults),
    refreshDefaults: async () => undefined
  } as unknown as IGpuPool;
  render(
    <ProjectChoice
      label="Project for train.ipynb"
      value=""
      onChange={path => chosen.push(path)}
      context={{ model, trans: nullTranslator.load('jupyter_gpupool') }}
    />
  );
  return chosen;
}

it('lists the projects with what each deserves, holds and has left', () => {
  const chosen = show(
    someDefaults({
      project: 'research/vision',
      projects: [
        {
          path: 'research/vision',
          deserved: 2000,
          limit: 3000,
          held: 400,
          free: 2595
        },
        { path: 'default', deserved: 500, limit: null, held: 0, free: null }
      ]
    })
  );
  expect(screen.getAllByRole('option').map(o => o.textContent)).toEqual([
    'your default (research/vision)',
    'research/vision: 0.4 held, 2 deserved, 2.59 left',
    'default: 0 held, 0.5 deserved'
  ]);
  fireEvent.change(
    screen.getByRole('combobox', { name: 'Project for train.ipynb' }),
    { target: { value: 'default' } }
  );
  expect(chosen).toEqual(['default']);
});

it('is a text where the projects are not known', () => {
  const chosen = show(null, { defaultProject: 'mine' });
  const input = screen.getByRole('textbox', {
    name: 'Project for train.ipynb'
  }) as HTMLInputElement;
  expect(input.placeholder).toBe('your default (mine)');
  fireEvent.change(input, { target: { value: 'a/b' } });
  expect(chosen).toEqual(['a/b']);
});
