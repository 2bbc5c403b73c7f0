import type { ComponentType } from 'preact';
import { useEffect, useErrorBoundary, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { Button, Segments } from '../components/controls.tsx';
import { DefinitionList, MessageBox } from '../components/layout.tsx';
import { useAction } from '../components/load.ts';
import { ownZone } from '../components/zones.ts';
import { chooseTheme, hrefOf, path, theme, themes } from './browser.ts';
import { isConnected, isSignedOut } from './client.ts';
import { PasswordDialog } from './password.tsx';
import { sessionError, isOutdated, isShownOnce, session, signOut, type SignedIn } from './session.ts';
import { BrandMark, SignInDialog, SignInPage } from './sign-in.tsx';

/** A page of the console. */
export interface Page {
  /** Path below `/console/`; '' for the first page. Longer paths belong to the page. */
  readonly path: string;
  readonly title: string;
  readonly component: ComponentType;
  /** Users who see it in the navigation; the service decides what they may do. */
  readonly isFor: 'account' | 'operator';
}

/** Finds the page of the address; '' is the first page that the user has. */
function findPage(own: readonly Page[]): Page | undefined {
  const [first = ''] = path.value.split('/');
  return own.find((page) => page.path === first) ?? (first === '' ? own[0] : undefined);
}

function Navigation({ pages, shown }: { readonly pages: readonly Page[]; readonly shown: Page | undefined }) {
  const nav = useRef<HTMLElement>(null);
  // In a narrow window the links scroll: the current one must be visible.
  useLayoutEffect(() => {
    const own = nav.current;
    const link = own?.querySelector<HTMLElement>('[aria-current]');
    if (own && link) own.scrollLeft = link.offsetLeft + link.offsetWidth / 2 - own.offsetLeft - own.clientWidth / 2;
  }, [shown]);
  return (
    <nav ref={nav} aria-label="Pages">
      <ul>
        {pages.map((page) => (
          <li key={page.path}>
            <a href={hrefOf(page.path)} aria-current={page === shown ? 'page' : undefined}>
              {page.title}
            </a>
          </li>
        ))}
      </ul>
    </nav>
  );
}

function reload(isForgetful: boolean): void {
  if (isForgetful) sessionStorage.clear();
  location.reload();
}

interface GuardedProps {
  readonly component: ComponentType;
  /** A new path renders the component again. */
  readonly path: string;
}

/** Renders a page, or an error message if it fails. */
function GuardedPage({ component: Component }: GuardedProps) {
  const [failure] = useErrorBoundary((error: unknown) => reportError(error));
  if (failure === undefined) return <Component />;
  return (
    <div class="card stack">
      <h1 tabIndex={-1}>This page has failed</h1>
      <MessageBox kind="error">{String(failure)}</MessageBox>
      <p>
        This is a bug of the console; your exports are not affected. Reload the page. If it fails again, send this
        message to your operator.
      </p>
      <div class="row">
        <Button kind="primary" onClick={() => reload(false)}>
          Reload page
        </Button>
        <Button onClick={() => reload(true)}>Discard input and reload</Button>
      </div>
    </div>
  );
}

/** Renders the current page. Navigation moves the focus to its heading. */
function ShownPage({ page }: { readonly page: Page | undefined }) {
  const before = useRef<{ readonly page: Page | undefined }>();
  useLayoutEffect(() => {
    document.title = `${page?.title ?? 'Not found'} · tributary`;
    // Also if the link that led here has disappeared.
    const isElsewhere = before.current?.page !== page || document.activeElement === document.body;
    if (before.current !== undefined && isElsewhere)
      document.querySelector<HTMLElement>('main h1')?.focus({ preventScroll: true });
    before.current = { page };
  }, [page, path.value]);
  if (page !== undefined) return <GuardedPage key={page.path} component={page.component} path={path.value} />;
  return (
    <div class="empty">
      <h1 tabIndex={-1}>Page not found</h1>
      <p>
        <a href={hrefOf('')}>New export</a>
      </p>
    </div>
  );
}

function UserMenu({ of }: { readonly of: SignedIn }) {
  const menu = useRef<HTMLDetailsElement>(null);
  const { error, act } = useAction();
  const [isChanging, setChanging] = useState(false);
  useEffect(() => {
    const close = (event: Event): void => {
      const isEscape = event instanceof KeyboardEvent && event.key === 'Escape';
      if (menu.current?.open !== true) return;
      if (isEscape) menu.current.querySelector('summary')?.focus();
      const isInside = event.target instanceof Node && menu.current.contains(event.target);
      if (isEscape || (event.type === 'click' && !isInside)) menu.current.open = false;
    };
    for (const kind of ['click', 'keydown']) document.addEventListener(kind, close);
    return () => {
      for (const kind of ['click', 'keydown']) document.removeEventListener(kind, close);
    };
  }, []);
  return (
    <details class="menu" ref={menu}>
      <summary>{of.name}</summary>
      <div class="menu-panel">
        <DefinitionList
          of={[
            ['User', of.idUser],
            ['Account', of.idAccount === 0 ? 'none' : of.idAccount],
            ['Your time zone', ownZone],
            ['Version', of.version],
          ]}
        />
        <Segments
          legend="Appearance"
          isLegendShown
          name="theme"
          choices={themes.map((each) => [each, each] as const)}
          value={theme.value}
          onChoose={chooseTheme}
        />
        {error !== undefined && <MessageBox kind="error">You are still signed in. {error.message}</MessageBox>}
        <Button kind="wide" onClick={() => setChanging(true)}>
          Change password
        </Button>
        <Button kind="wide" onClick={() => void act(signOut)}>
          Sign out
        </Button>
      </div>
      {isChanging && <PasswordDialog onClose={() => setChanging(false)} />}
    </details>
  );
}

function ServiceMessages() {
  return (
    <div role="status" class="connection">
      {!isConnected.value && (
        <MessageBox kind="warning">
          The connection to the service is lost. Your input is kept, and the page reconnects automatically.
        </MessageBox>
      )}
      {isOutdated.value && (
        <MessageBox kind="info">
          The service was upgraded. Reload this page when convenient; your draft is kept.{' '}
          <button class="link" type="button" onClick={() => location.reload()}>
            Reload page
          </button>
        </MessageBox>
      )}
    </div>
  );
}

/** Renders the frame with a page in it, or the sign-in. */
export function Shell({ pages }: { readonly pages: readonly Page[] }) {
  const of = session.value;
  if (of === 'unknown')
    return isConnected.value && sessionError.value === undefined ? null : (
      <main class="sign-in" id="main">
        <MessageBox kind="error">
          {isConnected.value ? sessionError.value?.message : "Can't reach the service."} This page continues when the
          service is back.
        </MessageBox>
      </main>
    );
  if (of === undefined) return <SignInPage />;
  const own = pages.filter(({ isFor }) => (isFor === 'operator' ? of.isOperator : of.idAccount !== 0));
  const page = findPage(own);
  return (
    <>
      <button class="skip" type="button" onClick={() => document.querySelector<HTMLElement>('#main')?.focus()}>
        Skip to content
      </button>
      <header class="bar">
        <a class="brand" href={hrefOf('')} aria-label="tributary: New export">
          <BrandMark />
          <span class="brand-name">tributary</span>
        </a>
        <Navigation pages={own} shown={page} />
        <UserMenu of={of} />
      </header>
      <ServiceMessages />
      <main id="main" tabIndex={-1}>
        <ShownPage page={page} />
      </main>
      {isSignedOut.value && !isShownOnce.value && <SignInDialog idUser={of.idUser} />}
    </>
  );
}
