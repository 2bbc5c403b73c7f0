import type { AccessPaths } from '../../access/access-file.ts';
import {
  addApp,
  addAppToken,
  type AppSettings,
  listApps,
  removeApp,
  restoreApp,
  revokeAppToken,
  setApp,
} from '../../access/apps.ts';
import { platforms, type Platform } from '../../datasets/field-schema.ts';
import type { Clock } from '../../runtime/clock.ts';
import type { Arguments } from '../api/arguments.ts';

import { badRequest, defined, type Refusal } from '../api/envelope.ts';
import { parseId, single } from '../api/methods-routes.ts';
import { type OperatorMethods, parseIdOrNone, parseLabel, parsePage, takePage } from './operator-methods.ts';

const longestTitle = 255;
const idExpected = badRequest('Argument idApp is expected: a whole number from 1');
const titleInvalid = badRequest(`Argument title is a text of at most ${longestTitle} characters`);

const isPlatform = (text: string | undefined): text is Platform => platforms.some((platform) => platform === text);

function parseApp(given: Arguments) {
  const idApp = parseId(single(given, 'idApp'));
  if (idApp === undefined) return idExpected;
  const platform = single(given, 'platform');
  if (!isPlatform(platform)) return badRequest(`Argument platform is expected: one of ${platforms.join(', ')}`);
  const idAccount = parseId(single(given, 'idAccount') ?? '1');
  if (idAccount === undefined) return badRequest('Argument idAccount is a whole number from 1');
  const idProject = parseId(single(given, 'idProject'));
  if (given.has('idProject') && idProject === undefined)
    return badRequest('Argument idProject is a whole number from 1');
  const title = parseLabel(single(given, 'title'), longestTitle);
  if (given.has('title') && title === undefined) return titleInvalid;
  return { idApp, platform, idAccount, ...defined({ idProject, title, sdkKey: single(given, 'sdkKey') }) };
}

function parseAppSettings(given: Arguments): AppSettings | Refusal {
  const title = parseLabel(single(given, 'title'), longestTitle);
  if (given.has('title') && title === undefined) return titleInvalid;
  const idProject = parseIdOrNone(single(given, 'idProject'));
  if (given.has('idProject') && idProject === undefined)
    return badRequest('Argument idProject is a whole number from 1, or none');
  if (title === undefined && idProject === undefined) return badRequest('Argument title or idProject is expected');
  return defined({ title, idProject });
}

/** Adds the methods of operators on apps and their tokens. */
export function addAppChanges({ look, change }: OperatorMethods, paths: AccessPaths, clock: Clock): void {
  look('/api/operations/v1/apps.json', 'operations_apps', ['search', 'offset', 'limit', 'removed'], async (given) => {
    const page = parsePage(given);
    if ('code' in page) return page;
    const apps = await listApps(paths, single(given, 'removed') === '1');
    const { items, total } = takePage(apps, page, ({ idApp, title, idAccount }) => [idApp, title, idAccount]);
    return { apps: items, total };
  });

  const known = ['idApp', 'platform', 'title', 'idAccount', 'idProject', 'sdkKey'];
  change('/api/operations/v1/app/add.json', 'operations_app_add', known, async (given) => {
    const app = parseApp(given);
    return 'code' in app ? app : await addApp(paths, app, clock.nowMs());
  });
  const ofApp = (
    verb: string,
    others: readonly string[],
    work: (idApp: number, given: Arguments) => Promise<object>,
  ): void =>
    change(`/api/operations/v1/app/${verb}.json`, `operations_app_${verb}`, ['idApp', ...others], async (given) => {
      const idApp = parseId(single(given, 'idApp'));
      return idApp === undefined ? idExpected : await work(idApp, given);
    });
  ofApp('set', ['title', 'idProject'], async (idApp, given) => {
    const settings = parseAppSettings(given);
    return 'code' in settings ? settings : await setApp(paths, idApp, settings);
  });
  ofApp('token', [], (idApp) => addAppToken(paths, idApp, clock.nowMs()));
  ofApp('revoke', ['prefix'], (idApp, given) => revokeAppToken(paths, idApp, single(given, 'prefix') ?? ''));
  ofApp('remove', [], (idApp) => removeApp(paths, idApp, clock.nowMs()));
  ofApp('restore', [], (idApp) => restoreApp(paths, idApp, clock.nowMs()));
}
