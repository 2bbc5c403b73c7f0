/**
 * The pages of the console: a program in the browser, built by `.build/console.mjs`.
 *
 * In: the session (`frame/session.ts`) and the API of the export area, called by `frame/client.ts`. Out: what a person
 * sees and orders. A page is registered in `pages.ts`. Nothing of the service's own code is imported here.
 */
import { render } from 'preact';
import { Shell } from './frame/shell.tsx';
import { startSession } from './frame/session.ts';
import { applyTheme } from './frame/theme.ts';

applyTheme();
startSession();
const root = document.querySelector('#app');
if (root !== null) render(<Shell />, root);
