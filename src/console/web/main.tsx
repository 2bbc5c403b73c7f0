/**
 * The pages of the console: a program in the browser, built by `.build/console.mjs`.
 *
 * In: the session (`frame/session.ts`) and the export API (`frame/client.ts`). Out: pages, and requests of their user.
 * No code of the service is imported here.
 */
import { render } from 'preact';
import { DataPage } from './data/data-page.tsx';
import { ExportsPage } from './exports/exports-page.tsx';
import { applyTheme } from './shell/browser.ts';
import { startSession } from './shell/session.ts';
import { Shell, type Page } from './shell/shell.tsx';
import { LivePage } from './live/live-page.tsx';
import { NewExportPage } from './new-export/new-export-page.tsx';
import { OperationsPage } from './operations/operations-page.tsx';

/** All pages, in the order of the navigation. */
const pages: readonly Page[] = [
  { path: '', title: 'New export', component: NewExportPage, isFor: 'account' },
  { path: 'exports', title: 'Exports', component: ExportsPage, isFor: 'account' },
  { path: 'data', title: 'Data', component: DataPage, isFor: 'account' },
  { path: 'live', title: 'Live', component: LivePage, isFor: 'account' },
  { path: 'operations', title: 'Operations', component: OperationsPage, isFor: 'operator' },
];

applyTheme();
startSession();
const root = document.querySelector('#app');
if (root !== null) render(<Shell pages={pages} />, root);
