import type { FastifyInstance, FastifyReply, FastifyRequest, RouteShorthandOptions } from 'fastify';
import type { AccessReader, User } from '../access/access.ts';
import type { Sessions } from '../access/sessions.ts';
import type { AuditLog } from '../audit/audit-log.ts';
import { pause } from '../runtime/async/retry.ts';
import { isAppError } from '../runtime/errors.ts';
import { membersOf } from '../runtime/files/checksummed-json.ts';
import type { createSignIn, SignInRefusal } from './sign-in.ts';

interface PasswordRouteDependencies {
  readonly access: AccessReader;
  readonly sessions: Sessions;
  readonly audit: Pick<AuditLog, 'record'>;
  readonly signIn: ReturnType<typeof createSignIn>;
  /** Stores a password, and returns its hash. Error: `usage` for one that breaks a rule. */
  readonly setPassword: (idUser: string, password: string) => Promise<string | undefined>;
  /** Starts a session, and sends it. */
  readonly begin: (user: User, reply: FastifyReply) => FastifyReply;
  readonly refuse: (
    reply: FastifyReply,
    code: SignInRefusal['code'],
    detail: string,
    waitSeconds?: number,
  ) => FastifyReply;
  readonly addressFor: (request: FastifyRequest) => string | undefined;
}

/** Time in which this process sees the new password, ms. */
const visibleMs = 5000;
const pollIntervalMs = 50;

function parseBody(body: unknown): { readonly secret: string; readonly password: string } | undefined {
  try {
    const { secret, password } = membersOf(JSON.parse(String(body)));
    return typeof secret === 'string' && typeof password === 'string' ? { secret, password } : undefined;
  } catch {
    return undefined;
  }
}

/**
 * Adds `POST /console/password`: the user of the session sets a password, with the current secret or password. It ends
 * all sessions of the user, and starts one.
 */
export function addPasswordRoute(
  server: FastifyInstance,
  { access, sessions, audit, signIn, setPassword, begin, refuse, addressFor }: PasswordRouteDependencies,
  routeOptions: RouteShorthandOptions,
): void {
  /** Waits until the access data of this process has the new hash: sessions are bound to it. */
  async function findChanged(idUser: string, passwordHash: string | undefined): Promise<User | undefined> {
    for (const begunMs = performance.now(); performance.now() - begunMs < visibleMs; await pause(pollIntervalMs)) {
      const user = access.current().findUser(idUser);
      if (user?.passwordHash === passwordHash) return user;
    }
    return undefined;
  }

  server.post('/console/password', routeOptions, async (request, reply) => {
    const caller = sessions.findCaller(request.headers);
    if (caller === undefined) return refuse(reply, 403, 'Sign in first');
    const given = parseBody(request.body);
    if (given === undefined) return refuse(reply, 400, 'secret and password must be texts');
    const { ip, headers } = request;
    const checked = await signIn({
      body: JSON.stringify({ idUser: caller.idUser, secret: given.secret }),
      ip,
      headers,
    });
    if ('code' in checked) return refuse(reply, checked.code, checked.detail, checked.waitSeconds);
    const { idUser, name } = checked.user;
    if (idUser !== caller.idUser) return refuse(reply, 401, 'The secret is wrong');
    let passwordHash: string | undefined;
    try {
      passwordHash = await setPassword(idUser, given.password);
    } catch (error) {
      if (!isAppError(error, 'usage')) throw error;
      return refuse(reply, 400, `${error.message.charAt(0).toUpperCase()}${error.message.slice(1)}`);
    }
    const details = { idUser, name, address: addressFor(request), subject: `user ${idUser}` };
    await audit.record('user_password', 'ok', details);
    const user = await findChanged(idUser, passwordHash);
    if (user === undefined) return refuse(reply, 500, 'The password was changed: sign in again', 1);
    return begin(user, reply);
  });
}
