import type { ComponentType } from 'preact';
import { DataPage } from './data/data-page.tsx';
import { ExportsPage } from './exports/exports-page.tsx';
import { LivePage } from './live/live-page.tsx';
import { NewExportPage } from './new-export/new-export-page.tsx';
import { OperationsPage } from './operations/operations-page.tsx';

/** A page of the console, and its place in the navigation. */
export interface Page {
  /** Its path below `/console/`; '' is the first page. Paths below it are the page's own. */
  readonly path: string;
  readonly title: string;
  readonly component: ComponentType;
  /** To whom it is shown: what it asks for is decided by the service, whoever sees the page. */
  readonly isFor: 'account' | 'operator';
}

/** Every page, in the order of the navigation. */
export const pages: readonly Page[] = [
  { path: '', title: 'New export', component: NewExportPage, isFor: 'account' },
  { path: 'exports', title: 'Exports', component: ExportsPage, isFor: 'account' },
  { path: 'data', title: 'Data', component: DataPage, isFor: 'account' },
  { path: 'live', title: 'Live', component: LivePage, isFor: 'account' },
  { path: 'operations', title: 'Operations', component: OperationsPage, isFor: 'operator' },
];
