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
import { badRequest, type Refusal } from '../api/envelope.ts';
import { single } from '../api/methods-routes.ts';
import { type OperatorMethods, parseId, parseIdOrNone, parseLabel, parsePage, takePage } from './operator-methods.ts';

const longestTitle = 255;
const idExpected = badRequest('Argument idApp is expected: a whole number from 1');

const isPlatform = (text: string | undefined): text is Platform => platforms.some((platform) => platform === text);

/** The new app that arguments describe, or what is wrong with them. */
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
  if (given.has('title') && title === undefined)
    return badRequest(`Argument title is a text of at most ${longestTitle} characters`);
  const sdkKey = single(given, 'sdkKey');
  return {
    idApp,
    platform,
    idAccount,
    ...(idProject === undefined ? {} : { idProject }),
    ...(title === undefined ? {} : { title }),
    ...(sdkKey === undefined ? {} : { sdkKey }),
  };
}

/** What arguments change of an app, or what is wrong with them. */
function parseAppSettings(given: Arguments): AppSettings | Refusal {
  const title = parseLabel(single(given, 'title'), longestTitle);
  if (given.has('title') && title === undefined)
    return badRequest(`Argument title is a text of at most ${longestTitle} characters`);
  const idProject = parseIdOrNone(single(given, 'idProject'));
  if (given.has('idProject') && idProject === undefined)
    return badRequest('Argument idProject is a whole number from 1, or none');
  if (title === undefined && idProject === undefined) return badRequest('Argument title or idProject is expected');
  return { ...(title === undefined ? {} : { title }), ...(idProject === undefined ? {} : { idProject }) };
}

/** What is done with an app that is named. */
const ofApp = (work: (idApp: number, given: Arguments) => Promise<object>) => (given: Arguments) => {
  const idApp = parseId(single(given, 'idApp'));
  return idApp === undefined ? Promise.resolve<Refusal>(idExpected) : work(idApp, given);
};

/** Adds the methods by which operators see and change apps and their tokens. */
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
  change(
    '/api/operations/v1/app/set.json',
    'operations_app_set',
    ['idApp', 'title', 'idProject'],
    ofApp(async (idApp, given) => {
      const settings = parseAppSettings(given);
      return 'code' in settings ? settings : await setApp(paths, idApp, settings);
    }),
  );
  change(
    '/api/operations/v1/app/token.json',
    'operations_app_token',
    ['idApp'],
    ofApp((idApp) => addAppToken(paths, idApp, clock.nowMs())),
  );
  change(
    '/api/operations/v1/app/revoke.json',
    'operations_app_revoke',
    ['idApp', 'prefix'],
    ofApp((idApp, given) => revokeAppToken(paths, idApp, single(given, 'prefix') ?? '')),
  );
  change(
    '/api/operations/v1/app/remove.json',
    'operations_app_remove',
    ['idApp'],
    ofApp((idApp) => removeApp(paths, idApp, clock.nowMs())),
  );
  change(
    '/api/operations/v1/app/restore.json',
    'operations_app_restore',
    ['idApp'],
    ofApp((idApp) => restoreApp(paths, idApp, clock.nowMs())),
  );
}
