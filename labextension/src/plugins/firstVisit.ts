import type { ISettingRegistry } from '@jupyterlab/settingregistry';
import { holds } from '../figures/session';
import { NAMESPACE, type IGpuPool } from '../model/tokens';

const PLUGIN = `${NAMESPACE}:plugin`;
const KEY = 'introduction';

/**
 * Whether the introduction is still shown: a setting, so that it is put away in
 * all workspaces. Who holds a GPU has no need of it.
 */
export class FirstVisit {
  constructor(
    private readonly _model: IGpuPool,
    private readonly _settings: Pick<ISettingRegistry, 'load' | 'set'>
  ) {
    // Until the settings are there nobody knows; then it would only flash.
    _settings
      .load(PLUGIN)
      .then(() => {
        this._known = true;
      })
      .catch(() => undefined);
    _model.changed.connect(this._look, this);
  }

  get shown(): boolean {
    return this._known && this._model.preferences.introduction;
  }

  done(): void {
    this._model.changed.disconnect(this._look, this);
    this._settings.set(PLUGIN, KEY, false).catch(reason => {
      console.error('It was not noted that the introduction was read', reason);
    });
  }

  private _look(): void {
    if (this.shown && this._model.state.kernels.some(holds)) {
      this.done();
    }
  }

  private _known = false;
}
