// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/rackpulse/rackpulse/ledger"
	"github.com/rackpulse/rackpulse/registry"
	"github.com/rackpulse/rackpulse/site"
)

// backupVerbs are "rackpulse registry backup" and "restore".
type backupVerbs struct {
	reach      nodeVerbs
	configFile string
	dataDir    string
	file       string
	log        logFlags
}

func registerBackup(top *kingpin.CmdClause) []verb {
	v := &backupVerbs{}
	backup := v.reach.flags(top.Command("backup", "Write the ledger to a file: from a registry that runs, or from the store that a configuration names."))
	backup.Flag("config.file", "Registry configuration; its store is read, no registry is asked.").StringVar(&v.configFile)
	backup.Flag("data-dir", "Folder of the ledger. Wins over the file's store.dir.").StringVar(&v.dataDir)
	backup.Arg("file", "File to write.").Required().StringVar(&v.file)
	restore := top.Command("restore", "Write a backup into an empty store, while no registry runs.")
	restore.Flag("config.file", "Registry configuration.").Default("registry.yml").StringVar(&v.configFile)
	restore.Flag("data-dir", "Folder of the ledger. Wins over the file's store.dir.").StringVar(&v.dataDir)
	restore.Arg("file", "File to read.").Required().StringVar(&v.file)
	return []verb{{backup, v.backup}, {restore, v.restore}}
}

// backup writes the file whole or not at all; only its owner may read it.
func (v *backupVerbs) backup(ctx context.Context, std stdio) (err error) {
	f, err := os.CreateTemp(filepath.Dir(v.file), filepath.Base(v.file)+".*")
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, f.Sync(), f.Close())
		if err == nil {
			err = os.Rename(f.Name(), v.file)
		}
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	if v.configFile != "" {
		err = v.dump(ctx, std, f)
	} else {
		err = v.fetch(ctx, f)
	}
	if err != nil {
		return err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	n, err := ledger.CheckBackup(f)
	if err != nil {
		return fmt.Errorf("the backup broke off: %w", err)
	}
	fmt.Fprintf(std.out, "%s: %d nodes, %d other records, %d open actions, %d events\n", v.file, n.Nodes, n.Records, n.Intents, n.Events)
	return f.Sync()
}

// fetch takes the ledger from a registry.
func (v *backupVerbs) fetch(ctx context.Context, w io.Writer) error {
	c, err := v.reach.client()
	if err != nil {
		return err
	}
	return c.Backup(ctx, w)
}

// dump takes the ledger from its store.
func (v *backupVerbs) dump(ctx context.Context, std stdio, w io.Writer) error {
	store, id, err := v.open(std)
	if err != nil {
		return err
	}
	_, err = ledger.Backup(ctx, store, id, time.Now(), w)
	return errors.Join(err, store.Close())
}

// open opens the store of the configuration and returns its site's id.
func (v *backupVerbs) open(std stdio) (ledger.Store, string, error) {
	v.log.level, v.log.format = "info", "logfmt"
	logger, _, err := v.log.loggers(std.err)
	if err != nil {
		return nil, "", err
	}
	cfg, err := registry.Load(v.configFile)
	if err != nil {
		return nil, "", err
	}
	if v.dataDir != "" {
		cfg.Store.Dir = filepath.Clean(v.dataDir)
	}
	s, err := site.Load(cfg.SiteFile)
	if err != nil {
		return nil, "", err
	}
	store, err := registry.OpenLedger(*cfg, s.ID, logger)
	return store, s.ID, err
}

func (v *backupVerbs) restore(ctx context.Context, std stdio) error {
	f, err := os.Open(v.file)
	if err != nil {
		return err
	}
	defer f.Close()
	store, id, err := v.open(std)
	if err != nil {
		return err
	}
	n, err := ledger.Restore(ctx, store, id, f)
	if err = errors.Join(err, store.Close()); err != nil {
		return fmt.Errorf("restore %s: %w", v.file, err)
	}
	fmt.Fprintf(std.out, "restored %d nodes, %d other records, %d open actions, %d events\n", n.Nodes, n.Records, n.Intents, n.Events)
	return nil
}
