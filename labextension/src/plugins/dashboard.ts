import {
  ILabShell,
  ILayoutRestorer,
  IRouter,
  type JupyterFrontEnd,
  type JupyterFrontEndPlugin
} from '@jupyterlab/application';
import {
  ICommandPalette,
  IThemeManager,
  MainAreaWidget,
  WidgetTracker
} from '@jupyterlab/apputils';
import { ILauncher } from '@jupyterlab/launcher';
import { ITranslator } from '@jupyterlab/translation';
import { Dashboard } from '../dashboard/Dashboard';
import { DashboardApi } from '../dashboard/api';
import { addDashboardCommands } from '../dashboard/commands';
import { DASHBOARD_ID, DashboardCommandIDs } from '../dashboard/ids';
import { DashboardModel } from '../dashboard/model';
import {
  labUrlOf,
  linkTo,
  PATTERN,
  placeIn,
  placeOf,
  queryOf,
  samePlace,
  type IPlace
} from '../dashboard/place';
import { NAMESPACE } from '../model/tokens';
import { ourWords } from './translation';

/** For the router and the layout: shows a place, and leaves the URL alone. */
const FOLLOW = 'gpupool:follow-dashboard-link';

export const dashboardPlugin: JupyterFrontEndPlugin<void> = {
  id: `${NAMESPACE}:dashboard`,
  description: 'Shows the history of the GPU pool in the main area.',
  autoStart: true,
  optional: [
    ITranslator,
    ILabShell,
    ILayoutRestorer,
    IRouter,
    IThemeManager,
    ILauncher,
    ICommandPalette
  ],
  activate: (
    app: JupyterFrontEnd,
    translator: ITranslator | null,
    labShell: ILabShell | null,
    restorer: ILayoutRestorer | null,
    router: IRouter | null,
    themes: IThemeManager | null,
    launcher: ILauncher | null,
    palette: ICommandPalette | null
  ): void => {
    const trans = ourWords(translator);
    const { commands, shell } = app;
    const tracker = new WidgetTracker<MainAreaWidget<Dashboard>>({
      namespace: DASHBOARD_ID
    });
    const { serverSettings } = app.serviceManager;
    const api = new DashboardApi(serverSettings);
    const link = (place: IPlace) =>
      linkTo(place, labUrlOf(serverSettings.baseUrl));

    const make = (place: IPlace): MainAreaWidget<Dashboard> => {
      const content = new Dashboard({
        model: new DashboardModel(api, place),
        commands,
        trans,
        link,
        themeChanged: themes?.themeChanged ?? null
      });
      const widget = new MainAreaWidget({ content });
      widget.id = DASHBOARD_ID;
      widget.toolbar.hide();
      return widget;
    };

    /** Shows a place without a word to the browser's history. */
    const show = (place: IPlace): void => {
      const present = tracker.find(one => !one.isDisposed);
      if (present) {
        present.content.context.model.go(place);
      } else {
        const widget = make(place);
        const { model } = widget.content.context;
        let kept = place;
        // Each save is a request that counts as activity: a server would never be idle.
        model.changed.connect(() => {
          if (!samePlace(kept, model.state.place)) {
            kept = model.state.place;
            void tracker.save(widget);
          }
        });
        shell.add(widget, 'main', { type: 'GPU dashboard' });
        void tracker.add(widget);
      }
      shell.activateById(DASHBOARD_ID);
    };

    addDashboardCommands(
      commands,
      {
        open: place => {
          if (labShell === null) {
            // Notebook has one document in a page and no room for this.
            window.open(link(place), '_blank', 'noopener');
            return;
          }
          show(place);
          if (router && router.current.search !== queryOf(place)) {
            // The address bar tells where one is, and Back leads back.
            router.navigate(`${labPath(router)}${queryOf(place)}`, {
              skipRouting: true
            });
          }
        },
        get model() {
          return tracker.currentWidget?.content.context.model ?? null;
        },
        link
      },
      trans
    );

    if (labShell === null) {
      return;
    }
    commands.addCommand(FOLLOW, {
      label: trans.__('Follow Link to GPU Dashboard'),
      describedBy: { args: { type: 'object', properties: {} } },
      execute: args => {
        const { search } = args;
        const place =
          typeof search === 'string' ? placeIn(search) : placeOf(args);
        if (place === null) {
          return;
        }
        if (typeof search === 'string') {
          // A link counts for more than what was open last time.
          void app.restored.then(() => show(place));
        } else {
          show(place);
        }
      }
    });
    void restorer?.restore(tracker, {
      command: FOLLOW,
      args: widget => ({ ...widget.content.context.model.state.place }),
      name: () => DASHBOARD_ID
    });
    router?.register({ command: FOLLOW, pattern: PATTERN, rank: 100 });
    launcher?.add({
      command: DashboardCommandIDs.open,
      category: trans.__('Other'),
      rank: 20
    });
    palette?.addItem({
      command: DashboardCommandIDs.open,
      category: trans.__('GPU'),
      args: { isPalette: true }
    });
    palette?.addItem({
      command: DashboardCommandIDs.copyLink,
      category: trans.__('GPU')
    });
  }
};

/** The path of the present workspace, without documents. */
function labPath(router: IRouter): string {
  return router.current.path.replace(/\/tree\/.*$/, '');
}
