import type { AccessReader, User } from '../../access/access.ts';
import type { Estimate, LookKind, Preview } from '../jobs/look-messages.ts';
import { lookTimeoutMs, type LookResult, type Looks } from '../jobs/looks.ts';
import { accessDenied, badRequest, isRefusal, type Refusal } from './envelope.ts';
import type { Exports } from './exports.ts';
import type { AddMethod, Answer } from './methods-routes.ts';
import { describeBasis } from './views.ts';

interface LookRouteDependencies {
  readonly exports: Exports;
  readonly looks: Looks;
  readonly access: AccessReader;
}

const retryAfterSeconds = 5;
const failed: Refusal = { code: 500, retryAfterSeconds };
const busy: Refusal = {
  code: 429,
  detail: 'Too many estimates and previews of the account at once',
  retryAfterSeconds,
};
const tooLong = badRequest(
  `The answer takes longer than ${lookTimeoutMs / 1000} s. Ask for fewer days or apps, or order the export`,
);

const describeEstimate = ({ basis, overLimits, ...estimate }: Estimate) => ({
  ...estimate,
  overLimit: overLimits.length > 0,
  overLimits,
  ...describeBasis(basis),
});

const describePreview = ({ basis, ...preview }: Preview) => ({ ...preview, ...describeBasis(basis) });

/** What the end of a look is answered with. */
function toAnswer(result: LookResult): Answer {
  switch (result.kind) {
    case 'estimate':
      return { data: describeEstimate(result.estimate) };
    case 'preview':
      return { data: describePreview(result.preview) };
    case 'busy':
      return busy;
    case 'timed_out':
      return tooLong;
    case 'failed':
      return result.reason === 'user' ? badRequest(result.error) : failed;
    case 'aborted':
    case 'killed':
    case 'crashed':
      return failed;
    default:
      return result satisfies never;
  }
}

/** Adds the methods that say what an export would be: its size, its first rows. Nothing is stored of them. */
export function addLookRoutes(addMethod: AddMethod, { exports, looks, access }: LookRouteDependencies): void {
  /** The apps that an account has now, as far as anybody knows. */
  const appsOf = ({ idAccount }: User): string =>
    access
      .current()
      .appsOfAccount(idAccount)
      .map(({ idApp }) => idApp)
      .join();

  const add = (look: LookKind): void =>
    addMethod(['GET', 'POST'], `/api/raw/v1/export/${look}.json`, look, async (user, given, { whileConnected }) => {
      const request = await exports.readRequest(user, given);
      if (isRefusal(request)) return request;
      const apps = appsOf(user);
      const { idAccount } = user;
      const result = await whileConnected((signal) => looks.run({ look, request, idAccount }, signal));
      // What was taken back meanwhile is told to nobody.
      const now = access.current().findUser(user.idUser);
      if (now === undefined || now.idAccount !== idAccount || !now.canExport) return accessDenied;
      return appsOf(user) === apps ? toAnswer(result) : failed;
    });
  add('estimate');
  add('preview');
}
