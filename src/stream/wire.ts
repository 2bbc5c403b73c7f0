import { connect as connectPlain, isIP, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { errors } from '@nats-io/transport-node';
import { createProtocolParser, type ProtocolSink } from './protocol-parser.ts';

/** Where a wire goes, and who we are to the broker there. */
export interface WireTarget {
  /** `host:port`. */
  readonly server: string;
  /** What the certificate names of a server that is known by its address alone, where there is TLS. */
  readonly tlsName: string | undefined;
  /** What CONNECT says beside its options: user and password, or a token. */
  readonly signIn: Readonly<Record<string, string>>;
  /** TLS, or no connection. */
  readonly tls: boolean;
  /** Shown in the broker's own list of connections. */
  readonly name: string;
}

/** A socket that a broker has let us in by. */
export interface Wire {
  write(text: string): void;
  /** Writes, and asks the broker for a sign of life. */
  writeAndPing(text: string): void;
  /** No sign of life has come that was asked for. */
  isSilent(): boolean;
  close(): void;
}

/** Takes what comes over a wire: messages, and its end. */
export interface WireSink extends Omit<ProtocolSink, 'line'> {
  /** An error that the broker reports. The wire is lost behind it, but where a right is missing. */
  reported(error: Error): void;
  /** Called once, at the end. */
  lost(error: Error): void;
}

const connectTimeoutMs = 2000;
/** What is read at once: messages of a full stream are tens of kilobytes, and each read has its price. */
const readBytes = 512 * 1024;

/** What a server says of itself, as far as it matters. */
interface ServerInfo {
  readonly tls_required?: boolean;
  readonly tls_available?: boolean;
}

/** The error that the broker reports in words, as the library has it. */
function toError(words: string): Error {
  const text = words.replace(/^-ERR\s*/i, '').replace(/^'(.*)'$/, '$1');
  return (
    errors.PermissionViolationError.parse(text) ??
    errors.UserAuthenticationExpiredError.parse(text) ??
    errors.AuthorizationError.parse(text) ??
    new errors.ProtocolError(text)
  );
}

/** A socket, plain until it is made secret. */
interface SecurableSocket {
  write(text: string): void;
  secure(): void;
  destroy(error?: Error): void;
}

/** Dials. What `receive` is given is valid until it returns; what it throws ends the socket. */
function dial(
  { server, tlsName }: WireTarget,
  receive: (bytes: Buffer) => void,
  lost: (error: Error) => void,
): SecurableSocket {
  const { hostname, port } = new URL(`nats://${server}`);
  const host = hostname.replace(/^\[(.*)\]$/, '$1');
  let failure: Error = new errors.ConnectionError('the connection was lost');
  let socket: Socket;

  function take(bytes: Buffer): void {
    try {
      receive(bytes);
    } catch (error) {
      socket.destroy(error as Error);
    }
  }

  const fail = (error: Error): void => void (failure = error);
  const end = (): void => lost(failure);

  // One buffer for all reads: Node would make one for each.
  const callback = (bytes: number, buffer: Uint8Array): boolean => {
    take((buffer as Buffer).subarray(0, bytes));
    return true;
  };
  const onread = { buffer: Buffer.allocUnsafeSlow(readBytes), callback };
  const plain = connectPlain({ host, port: Number(port === '' ? 4222 : port), noDelay: true, onread });
  socket = plain.on('error', fail).on('close', end);
  return {
    write: (text) => void socket.write(text),
    secure() {
      const name = isIP(host) === 0 ? host : (tlsName ?? host);
      const servername = isIP(name) === 0 ? { servername: name } : {};
      socket = connectTls({ socket: plain, host: name, ...servername, rejectUnauthorized: true });
      plain.off('close', end);
      socket.on('error', fail).on('close', end).on('data', take);
    },
    destroy: (error) => void socket.destroy(error),
  };
}

/**
 * Connects and signs in. Errors: those of the socket and of NATS's library, such as `AuthorizationError`; a broker that
 * does not answer for two seconds is a `TimeoutError`.
 */
export function openWire(target: WireTarget, sink: WireSink): Promise<Wire> {
  return new Promise((resolve, reject) => {
    const parser = createProtocolParser({ ...sink, line });
    const socket = dial(target, (bytes) => parser.feed(bytes), lose);
    const timer = setTimeout(() => socket.destroy(new errors.TimeoutError()), connectTimeoutMs);
    let isGreeted = false;
    /** Signs of life that are still to come. */
    let pongsDue = 1;

    const wire: Wire = {
      write: (text) => socket.write(text),
      writeAndPing(text) {
        pongsDue += 1;
        socket.write(`${text}PING\r\n`);
      },
      isSilent: () => pongsDue > 0,
      close: () => socket.destroy(),
    };

    function lose(error: Error): void {
      clearTimeout(timer);
      reject(error);
      sink.lost(error);
    }

    function signIn({ tls_required = false, tls_available = false }: ServerInfo): void {
      const isSecret = tls_required || tls_available;
      if (target.tls && !isSecret) throw new errors.ConnectionError('tls is not available on this server');
      if (isSecret) socket.secure();
      const options = {
        verbose: false,
        pedantic: false,
        protocol: 1,
        headers: true,
        no_responders: true,
        lang: 'node',
      };
      const connect = { ...options, ...target.signIn, name: target.name, tls_required: isSecret };
      socket.write(`CONNECT ${JSON.stringify(connect)}\r\nPING\r\n`);
    }

    function line(text: string): void {
      const [word = ''] = text.split(/[ \t]/, 1);
      switch (word.toUpperCase()) {
        case 'PING':
          return socket.write('PONG\r\n');
        case 'PONG':
          clearTimeout(timer);
          pongsDue -= 1;
          return resolve(wire);
        case 'INFO':
          // The later ones are news of the cluster.
          if (!isGreeted) signIn(JSON.parse(text.slice(word.length)) as ServerInfo);
          isGreeted = true;
          return undefined;
        case '-ERR': {
          const error = toError(text);
          sink.reported(error);
          if (!(error instanceof errors.PermissionViolationError)) socket.destroy(error);
          return undefined;
        }
        default:
          return undefined;
      }
    }
  });
}
